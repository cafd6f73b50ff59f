"""vLLM's `/tokenize`: the question made of a request body, and the token ids in its answer.

The server applies its own chat template, so that the ids are those of the prompt as it will be read. No socket here.
"""

import array
import sys
from typing import Any

import orjson

MAX_ANSWER_TOKENS = 1 << 20
_CHAT_FIELDS = (
    "messages", "tools", "chat_template", "chat_template_kwargs", "add_generation_prompt",
    "continue_final_message", "mm_processor_kwargs",
)  # fmt: skip


class TokenizeError(ValueError):
    """The answer holds no token ids."""


def tokenize_request(body: bytes, model: str) -> bytes | None:
    """Return the body that asks for the ids of a chat or of one text prompt; None for any other body."""
    try:
        fields: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(fields, dict):
        return None
    asked: dict[str, Any]
    if isinstance(fields.get("messages"), list):
        asked = {name: fields[name] for name in _CHAT_FIELDS if name in fields}
    elif isinstance(fields.get("prompt"), str):
        asked = {"prompt": fields["prompt"]}
        if "add_special_tokens" in fields:
            asked["add_special_tokens"] = fields["add_special_tokens"]
    else:
        return None
    try:
        return orjson.dumps({"model": model, **asked})
    except TypeError:
        return None


def read_tokens(answer: bytes) -> bytes:
    """Return the ids of an answer, 4 bytes each, little-endian. Raises `TokenizeError`."""
    try:
        document: Any = orjson.loads(answer)
        tokens: Any = document["tokens"]
        if not isinstance(tokens, list) or len(tokens) > MAX_ANSWER_TOKENS:
            raise TokenizeError("tokens are no list, or too many")
        packed = array.array("I", tokens)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise TokenizeError(f"no token ids: {type(error).__name__}") from None
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()
