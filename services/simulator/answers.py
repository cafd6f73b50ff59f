"""Rendering OpenAI answers: documents, stream chunks and errors, byte by byte.

Pure; the server decides when each is sent. A stream's chunks differ only in their text, so everything
around it is rendered once per answer: a pod writes thousands of chunks a second on a shared core.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from services.simulator.completions import ApiError
from services.simulator.tokens import word, words

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a whole answer; `cached_tokens` of the prompt came from the prefix cache."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    def document(self) -> dict[str, object]:
        """Return OpenAI's usage object."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "completion_tokens": self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


@dataclass(frozen=True, slots=True)
class Choice:
    """One finished choice: how many tokens and why it ended (`stop` or `length`)."""

    tokens: int
    finish_reason: str


class AnswerForm:
    """How one answer looks on the wire: chat or completion, under one id, model and creation time (Unix s)."""

    def __init__(self, *, chat: bool, answer_id: str, model: str, created_s: int) -> None:
        self._chat = chat
        self._head: dict[str, Any] = {
            "id": answer_id,
            "object": "",
            "created": created_s,
            "model": model,
        }
        self._chunk_object = "chat.completion.chunk" if chat else "text_completion"
        # What surrounds the text of a content chunk, by choice.
        self._content: dict[int, tuple[bytes, bytes]] = {}

    def document(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """Return the whole non-streaming answer."""
        rendered = []
        for index, choice in enumerate(choices):
            text = words(choice.tokens)
            body: dict[str, Any] = {"index": index}
            if self._chat:
                body["message"] = {"role": "assistant", "content": text}
            else:
                body["text"] = text
            body |= {"logprobs": None, "finish_reason": choice.finish_reason}
            rendered.append(body)
        kind = "chat.completion" if self._chat else "text_completion"
        return orjson.dumps(self._head | {"object": kind, "choices": rendered, "usage": usage.document()})

    def opening(self, index: int) -> bytes:
        """Return the first chunk of a chat choice, which names the role; completions have none."""
        if not self._chat:
            return b""
        return self._event(
            [
                {
                    "index": index,
                    "delta": {"role": "assistant", "content": ""},
                    "logprobs": None,
                    "finish_reason": None,
                }
            ]
        )

    def token(self, index: int, position: int) -> bytes:
        """Return the chunk with the token at `position` of choice `index`."""
        around = self._content.get(index)
        if around is None:
            around = self._content[index] = self._around(index)
        # The words hold no character that JSON escapes.
        return around[0] + word(position).encode() + around[1]

    def ending(self, index: int, finish_reason: str) -> bytes:
        """Return the chunk that ends a choice."""
        choice: dict[str, Any] = {"index": index}
        if self._chat:
            choice["delta"] = {}
        else:
            choice["text"] = ""
        choice |= {"logprobs": None, "finish_reason": finish_reason}
        return self._event([choice])

    def usage(self, usage: Usage) -> bytes:
        """Return the chunk without choices that `stream_options.include_usage` asks for."""
        return self._event([], usage)

    def _around(self, index: int) -> tuple[bytes, bytes]:
        """Return what stands before and after the text in a content chunk of choice `index`."""
        key = b'"content":"' if self._chat else b'"text":"'
        choice: dict[str, Any] = {"index": index}
        if self._chat:
            choice["delta"] = {"content": ""}
        else:
            choice["text"] = ""
        choice |= {"logprobs": None, "finish_reason": None}
        event = self._event([choice])
        cut = event.rindex(key) + len(key)
        return event[:cut], event[cut:]

    def _event(self, choices: list[dict[str, Any]], usage: Usage | None = None) -> bytes:
        document = self._head | {"object": self._chunk_object, "choices": choices}
        if usage is not None:
            document["usage"] = usage.document()
        return b"data: " + orjson.dumps(document) + b"\n\n"


def error_document(error: ApiError) -> bytes:
    """Return OpenAI's error form; `code` is the status, as vLLM has it."""
    return orjson.dumps(
        {
            "error": {
                "message": error.message,
                "type": error.error_type,
                "param": error.param,
                "code": error.status,
            }
        }
    )
