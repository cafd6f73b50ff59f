"""The names a pod answers to: base model, aliases and LoRA adapters, with adapters loaded and unloaded by name.

Pure; words of answers and errors are vLLM's (vllm/entrypoints/openai/serving_models.py). Whether an adapter
holds a GPU slot is the engine's business: an adapter that is listed may still have to be brought in.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from services.simulator.completions import ApiError, bad_request


class _Adapter(BaseModel):
    model_config = ConfigDict(extra="ignore")
    lora_name: Annotated[str, Field(strict=True)] = ""
    lora_path: Annotated[str, Field(strict=True)] = ""
    load_inplace: bool = False


class ServedModels:
    """`names` are the base model and its aliases; `owner` is who /v1/models says owns them."""

    def __init__(self, names: Sequence[str], adapters: Iterable[str], owner: str, max_model_len: int) -> None:
        self._names = tuple(names)
        self._owner = owner
        self._max_model_len = max_model_len
        self._adapters = {name: f"/adapters/{name}" for name in adapters}

    def adapter(self, model: str) -> str:
        """Return the adapter that a request for `model` needs, empty for the base model. Raises ApiError 404."""
        if model in self._adapters:
            return model
        if model in self._names:
            return ""
        raise ApiError(404, "NotFoundError", f"The model `{model}` does not exist.", "model")

    def load(self, body: bytes) -> str:
        """Take in the adapter that a /v1/load_lora_adapter body names; return what to answer."""
        asked = _read(body)
        name = asked.lora_name
        if not name or not asked.lora_path:
            raise ApiError(400, "InvalidUserInput", "Both 'lora_name' and 'lora_path' must be provided.")
        if name in self._names or (name in self._adapters and not asked.load_inplace):
            raise ApiError(
                400,
                "InvalidUserInput",
                f"The lora adapter '{name}' has already been loaded. If you want to load the adapter in "
                "place, set 'load_inplace' to True.",
            )
        self._adapters[name] = asked.lora_path
        return f"Success: LoRA adapter '{name}' added successfully."

    def unload(self, body: bytes) -> str:
        """Forget the adapter that a /v1/unload_lora_adapter body names; requests in flight go on."""
        name = _read(body).lora_name
        if not name:
            raise ApiError(
                400, "InvalidUserInput", "'lora_name' needs to be provided to unload a LoRA adapter."
            )
        if name not in self._adapters:
            raise ApiError(404, "NotFoundError", f"The lora adapter '{name}' cannot be found.")
        del self._adapters[name]
        return f"Success: LoRA adapter '{name}' removed successfully."

    def document(self) -> bytes:
        """Return the /v1/models document: base model, aliases with it as their root, adapters with it as parent."""
        base = self._names[0]
        data = [self._card(name, base, None) for name in self._names]
        data += [self._card(name, path, base) for name, path in self._adapters.items()]
        return orjson.dumps({"object": "list", "data": data})

    def _card(self, name: str, root: str, parent: str | None) -> Mapping[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": self._owner,
            "root": root,
            "parent": parent,
            # An adapter has no length of its own.
            "max_model_len": self._max_model_len if parent is None else None,
            "permission": [],
        }


def _read(body: bytes) -> _Adapter:
    try:
        return _Adapter.model_validate_json(body)
    except ValidationError as error:
        raise bad_request(error.errors(include_url=False)[0]["msg"]) from None
