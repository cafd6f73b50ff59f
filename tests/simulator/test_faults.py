from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.simulator.engine import Slowdown
from services.simulator.faults import FailureType, Faults, MetricsFault, ProbeFault, updated


def test_the_default_knobs_do_no_harm() -> None:
    assert Faults().slowdown() == Slowdown()
    assert Faults().injected("pod", "request") is None


def test_an_update_changes_only_what_it_names() -> None:
    first = updated(Faults(), {"extra-ttft-ms": 250, "metrics": "nan"})
    second = updated(first, {"probes": "hang", "hang": True, "failure_types": ["rate_limit"]})
    assert second == Faults(
        extra_ttft_ms=250.0,
        metrics=MetricsFault.NAN,
        probes=ProbeFault.HANG,
        hang=True,
        failure_types=(FailureType.RATE_LIMIT,),
    )
    assert second.slowdown().extra_ttft == 250_000_000


def test_an_empty_list_of_failures_means_all_of_them() -> None:
    assert updated(Faults(), {"failure_types": []}).failure_types == tuple(FailureType)


def test_the_document_of_the_knobs_is_an_update_that_changes_nothing() -> None:
    faults = updated(
        Faults(),
        {"inter_token_factor": 4, "failure_types": ["rate_limit"], "metrics": "zero", "kv_events": "lose"},
    )
    assert updated(Faults(), faults.document()) == faults


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra_ttft_ms": -1}, "extra_ttft_ms: expected 0 to 600000, not -1"),
        ({"extra_ttft_ms": "5"}, "extra_ttft_ms: expected a number, not '5'"),
        ({"inter_token_factor": 0}, "inter_token_factor: expected 0.01 to 1000, not 0"),
        ({"inter_token_factor": float("nan")}, "inter_token_factor: expected a number"),
        ({"failure_injection_rate": 101}, "failure_injection_rate: expected 0 to 100, not 101"),
        ({"failure_injection_rate": True}, "failure_injection_rate: expected a number, not True"),
        ({"failure_types": "rate_limit"}, "failure_types: expected a list of rate_limit"),
        ({"failure_types": ["boom"]}, "failure_types: expected a list of rate_limit"),
        ({"failure_types": [["rate_limit"]]}, "failure_types: expected a list of rate_limit"),
        ({"hang": 1}, "hang: expected true or false, not 1"),
        ({"metrics": "wrong"}, "metrics: expected one of none, hang, frozen"),
        ({"kv_events": "drop"}, "kv_events: expected one of none, lose, not 'drop'"),
        ({"probes": None}, "probes: expected one of none, hang, fail, not None"),
        ({"latency": 1}, "latency: no such knob; known are extra_ttft_ms"),
    ],
)
def test_a_wrong_update_is_refused_with_its_reason(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        updated(Faults(), change)


def test_every_mistake_of_an_update_is_named() -> None:
    with pytest.raises(ValueError, match=r"hang: .*; colour: no such knob"):
        updated(Faults(), {"hang": 3, "colour": "red", "extra_ttft_ms": 5})


@given(st.integers(0, 100))
def test_an_injection_hits_about_its_share_of_requests(rate: int) -> None:
    """Invariant: over many ids the share hit is the rate within 5 points, and 0 and 100 are exact."""
    faults = Faults(failure_injection_rate=rate)
    hits = sum(faults.injected("pod", f"request-{i}") is not None for i in range(1000))
    assert abs(hits / 10 - rate) < 5
    assert rate not in {0, 100} or hits == rate * 10


@given(st.text(), st.text())
def test_an_injection_is_the_same_each_time(pod: str, request_id: str) -> None:
    """Invariant: pod and request id alone decide what a request meets."""
    faults = Faults(failure_injection_rate=50.0)
    assert faults.injected(pod, request_id) is faults.injected(pod, request_id)


def test_a_retry_elsewhere_draws_anew() -> None:
    faults = Faults(failure_injection_rate=50.0)
    fates = {faults.injected(f"pod-{i}", "request") is None for i in range(20)}
    assert fates == {True, False}
