"""Headers that steer a pick: both generations, the younger wins, and nothing malformed is ignored."""

import pytest

from services.wire.control_headers import BadHeaderError
from services.wire.pick_controls import DEFAULT_FLOW, NO_PICK_CONTROLS, PickControls, read_pick_controls


def read(**headers: str) -> PickControls:
    return read_pick_controls({n.replace("_", "-").encode(): v.encode() for n, v in headers.items()}.get)


def test_a_request_without_controls_costs_nothing() -> None:
    assert read(accept="*/*") is NO_PICK_CONTROLS
    assert NO_PICK_CONTROLS.fairness_id == DEFAULT_FLOW


@pytest.mark.parametrize("generation", ["x_llm_d_", "x_gateway_"])
def test_both_generations_of_names_are_read(generation: str) -> None:
    said = read(
        **{
            f"{generation}inference_fairness_id": "acme",
            f"{generation}inference_objective": "gold",
            f"{generation}model_name_rewrite": "m-2",
        }
    )
    assert (said.fairness_id, said.objective, said.model_rewrite) == ("acme", "gold", "m-2")


def test_the_younger_name_wins() -> None:
    said = read(x_gateway_inference_objective="old", x_llm_d_inference_objective="new")
    assert said.objective == "new"


@pytest.mark.parametrize("name", ["x_llm_d_slo_ttft_ms", "x_slo_ttft_ms"])
def test_targets_are_milliseconds(name: str) -> None:
    assert read(**{name: "250.5"}).ttft_slo_ms == 250.5


def test_sessions_by_id_and_by_token() -> None:
    assert read(x_session_id="chat").session == read(x_gir_session="chat").session == "chat"
    assert read(x_session_token="bnMvcG9k").session_token == "bnMvcG9k"


@pytest.mark.parametrize(
    ("prefer", "wanted"),
    [("if-available", True), ("wait=10, If-Available;x=1", True), ("respond-async", False), ("", False)],
)
def test_prefer_is_a_list_of_preferences(prefer: str, wanted: bool) -> None:
    assert read(prefer=prefer).if_available is wanted


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("x_llm_d_inference_fairness_id", ""),
        ("x_llm_d_inference_fairness_id", "two words"),
        ("x_llm_d_inference_objective", "x" * 257),
        ("x_llm_d_model_name_rewrite", "m\x01"),
        ("x_llm_d_slo_ttft_ms", "soon"),
        ("x_llm_d_slo_ttft_ms", "0"),
        ("x_llm_d_slo_ttft_ms", "-1"),
        ("x_llm_d_slo_ttft_ms", "9999999"),
        ("x_gir_session", "é"),
    ],
)
def test_a_malformed_control_is_an_error_that_names_its_header(header: str, value: str) -> None:
    with pytest.raises(BadHeaderError, match=header.replace("_", "-")):
        read(**{header: value})
