from typing import Any

import orjson
import pytest

from services.simulator.completions import ApiError
from services.simulator.served_models import ServedModels


def served(*adapters: str) -> ServedModels:
    return ServedModels(("base", "alias"), adapters, "vllm", 4096)


def cards(models: ServedModels) -> list[dict[str, Any]]:
    data: list[dict[str, Any]] = orjson.loads(models.document())["data"]
    return data


def body(**fields: Any) -> bytes:
    return orjson.dumps(fields)


def test_aliases_point_at_the_base_model_and_adapters_have_it_as_parent() -> None:
    shown = [
        (card["id"], card["root"], card["parent"], card["max_model_len"]) for card in cards(served("sql"))
    ]
    assert shown == [
        ("base", "base", None, 4096),
        ("alias", "base", None, 4096),
        ("sql", "/adapters/sql", "base", None),
    ]
    assert {card["owned_by"] for card in cards(served())} == {"vllm"}


def test_a_request_needs_the_adapter_it_names_and_nothing_else() -> None:
    models = served("sql")
    assert [models.adapter(name) for name in ("base", "alias", "sql")] == ["", "", "sql"]
    with pytest.raises(ApiError, match="`no` does not exist") as caught:
        models.adapter("no")
    assert (caught.value.status, caught.value.param) == (404, "model")


def test_an_adapter_comes_and_goes_by_name() -> None:
    models = served()
    said = models.load(body(lora_name="sql", lora_path="/disk/sql"))
    assert said == "Success: LoRA adapter 'sql' added successfully."
    assert models.adapter("sql") == "sql"
    assert cards(models)[-1]["root"] == "/disk/sql"
    assert models.unload(body(lora_name="sql")) == "Success: LoRA adapter 'sql' removed successfully."
    with pytest.raises(ApiError):
        models.adapter("sql")


def test_a_known_adapter_is_loaded_again_only_in_place() -> None:
    models = served("sql")
    with pytest.raises(ApiError, match="'sql' has already been loaded") as caught:
        models.load(body(lora_name="sql", lora_path="/new"))
    assert (caught.value.status, caught.value.error_type) == (400, "InvalidUserInput")
    models.load(body(lora_name="sql", lora_path="/new", load_inplace=True))
    assert cards(models)[-1]["root"] == "/new"


@pytest.mark.parametrize("name", ["base", "alias"])
def test_a_models_own_name_is_no_adapters(name: str) -> None:
    with pytest.raises(ApiError, match="already been loaded"):
        served().load(body(lora_name=name, lora_path="/x", load_inplace=True))


@pytest.mark.parametrize(
    ("content", "status", "sentence"),
    [
        (body(lora_name="sql"), 400, "Both 'lora_name' and 'lora_path' must be provided"),
        (body(lora_path="/x"), 400, "Both 'lora_name' and 'lora_path' must be provided"),
        (body(lora_name=7, lora_path="/x"), 400, "valid string"),
        (b"{", 400, "Invalid JSON"),
    ],
)
def test_a_wrong_load_is_refused(content: bytes, status: int, sentence: str) -> None:
    with pytest.raises(ApiError, match=sentence) as caught:
        served().load(content)
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("content", "status", "sentence"),
    [
        (body(), 400, "'lora_name' needs to be provided"),
        (body(lora_name="no"), 404, "'no' cannot be found"),
        (b"[]", 400, "should be an object"),
    ],
)
def test_a_wrong_unload_is_refused(content: bytes, status: int, sentence: str) -> None:
    with pytest.raises(ApiError, match=sentence) as caught:
        served().unload(content)
    assert caught.value.status == status
