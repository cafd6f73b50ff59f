import pytest

from services.core.inference import ModelName
from services.core.models.routing import ResolvedModel
from services.wire.control_headers import BadHeaderError
from services.wire.model_headers import model_headers, read_rewrite


def test_the_target_and_its_base_go_upstream() -> None:
    names = (ModelName("gpt-4o"), ModelName("sql-lora"), ModelName("ll\u00e1ma"))
    assert model_headers(ResolvedModel("pool", *names, adapter=names[1])) == (
        (b"x-gateway-model-name", b"sql-lora"),
        (b"x-gateway-base-model-name", "ll\u00e1ma".encode()),
    )


@pytest.mark.parametrize(
    ("headers", "target"),
    [
        ({}, None),
        ({b"x-llm-d-model-name-rewrite": b"sql-lora"}, "sql-lora"),
        ({b"x-gateway-model-name-rewrite": b"org/m"}, "org/m"),
        ({b"x-gateway-model-name-rewrite": b"old", b"x-llm-d-model-name-rewrite": b"new"}, "new"),
        ({b"x-llm-d-model-name-rewrite": "ll\u00e1ma".encode()}, "ll\u00e1ma"),
    ],
)
def test_a_rewrite_is_read_by_either_name(headers: dict[bytes, bytes], target: str | None) -> None:
    assert read_rewrite(headers.get) == target


@pytest.mark.parametrize("raw", [b"", b"a b", b"a\tb", b"\xff", "a\ufffd".encode(), b"a" * 257])
def test_what_is_no_name_is_refused(raw: bytes) -> None:
    with pytest.raises(BadHeaderError, match="x-gateway-model-name-rewrite: must be a model name"):
        read_rewrite({b"x-gateway-model-name-rewrite": raw}.get)
