import pytest

from services.core.models.names import MAX_MODEL_NAME_CHARS, is_model_name


@pytest.mark.parametrize(
    "name",
    [
        "llama-8b",
        "LLAMA-8B",
        "meta-llama/Llama-3.1-8B-Instruct",
        "org/model:tag@sha256",
        "modèle",
        "模型",
        "a" * MAX_MODEL_NAME_CHARS,
    ],
)
def test_printable_names_without_spaces_are_names(name: str) -> None:
    assert is_model_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        " llama-8b ",
        "llama 8b",
        "llama-8b\u0000",
        "llama\r\nx-gateway-model-name: other",
        "llama\t",
        "llama\u00a0",
        "llama\u200b",
        "llama\ud800",
        "a" * (MAX_MODEL_NAME_CHARS + 1),
    ],
)
def test_what_could_pass_for_another_name_or_break_a_header_is_none(name: str) -> None:
    assert not is_model_name(name)
