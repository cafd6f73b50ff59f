"""Reading OpenAI request bodies as vLLM's front end does: prompts, lengths, and errors in its words.

Unknown fields are accepted and ignored, sampling fields too; `stop` never matches, since answers are made
of fixed words. Pure: bytes in, a `Generation` or an `ApiError` out. Apart from the router's own body
reader because a model server counts the prompt where a router only measures the body.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from services.simulator.tokens import (
    BYTES_PER_TOKEN,
    END_OF_MESSAGE,
    content_of,
    start_of_message,
    tokens_of,
)

CHOICES_MAX = 128
"""OpenAI's bound on `n`; vLLM's default for prompts times n is higher, but no test needs more."""


class ApiError(Exception):
    """An answer in OpenAI's error form: HTTP status, message, type and the parameter at fault."""

    def __init__(self, status: int, error_type: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error_type = error_type
        self.message = message
        self.param = param


def bad_request(message: str, param: str | None = None) -> ApiError:
    """Return vLLM's 400."""
    return ApiError(400, "BadRequestError", message, param)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt as whole tokens of four bytes each (`tokens` module)."""

    content: bytes

    @property
    def tokens(self) -> int:
        """Its length in tokens."""
        return len(self.content) // BYTES_PER_TOKEN


@dataclass(frozen=True, slots=True)
class Generation:
    """What a request asks for. One answer per prompt and per `n`, in that order.

    `max_tokens` None means up to the context length. `cache_salt` separates prefix caches.
    """

    model: str
    prompts: tuple[Prompt, ...]
    n: int
    max_tokens: int | None
    min_tokens: int
    ignore_eos: bool
    stream: bool
    include_usage: bool
    cache_salt: str


class _StreamOptions(BaseModel):
    model_config = ConfigDict(extra="ignore")
    include_usage: bool | None = None


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore")
    model: Annotated[str, Field(strict=True, min_length=1)]
    n: Annotated[int, Field(ge=1, le=CHOICES_MAX)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    min_tokens: Annotated[int, Field(ge=0)] = 0
    ignore_eos: bool = False
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    cache_salt: str | None = None


class _Message(BaseModel):
    model_config = ConfigDict(extra="ignore")
    role: str
    content: str | list[dict[str, Any]] | None = None


class _ChatBody(_Body):
    messages: Annotated[list[_Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None


class _CompletionBody(_Body):
    prompt: Annotated[str | list[int] | list[str] | list[list[int]], Field(min_length=1)]


class _TokenizeBody(BaseModel):
    model_config = ConfigDict(extra="ignore")
    model: Annotated[str, Field(strict=True)] = ""
    prompt: str | None = None
    messages: Annotated[list[_Message], Field(min_length=1)] | None = None


_B = TypeVar("_B", bound=BaseModel)

COMPLETION_TOKENS_DEFAULT = 16
"""OpenAI's and vLLM's default `max_tokens` of /v1/completions; chat has none."""


def read_chat(body: bytes) -> Generation:
    """Return what a /v1/chat/completions body asks for. Raises ApiError."""
    parsed = _validated(_ChatBody, body)
    limit = parsed.max_completion_tokens if parsed.max_completion_tokens is not None else parsed.max_tokens
    return _generation(parsed, (_conversation(parsed.messages),), limit)


def read_completion(body: bytes) -> Generation:
    """Return what a /v1/completions body asks for. Raises ApiError."""
    parsed = _validated(_CompletionBody, body)
    limit = parsed.max_tokens if parsed.max_tokens is not None else COMPLETION_TOKENS_DEFAULT
    return _generation(parsed, tuple(_prompts(parsed.prompt)), limit)


def read_tokenize(body: bytes) -> tuple[str, Prompt]:
    """Return the model and the one prompt of a /tokenize body, of text or of messages. Raises ApiError."""
    parsed = _validated(_TokenizeBody, body)
    if parsed.messages is not None:
        return parsed.model, _conversation(parsed.messages)
    if parsed.prompt is None:
        raise bad_request("prompt: Field required", "prompt")
    return parsed.model, _text_prompt(parsed.prompt)


def check_length(generation: Generation, max_model_len: int) -> None:
    """Raise ApiError when a prompt and its answer cannot fit into `max_model_len` tokens."""
    for prompt in generation.prompts:
        wanted = generation.max_tokens if generation.max_tokens is not None else 1
        if prompt.tokens + wanted > max_model_len:
            raise bad_request(
                f"This model's maximum context length is {max_model_len} tokens. However, you requested "
                f"{prompt.tokens + wanted} tokens ({prompt.tokens} in the prompt, {wanted} in the "
                "completion). Please reduce the length of the prompt or completion.",
                "max_tokens" if prompt.tokens < max_model_len else None,
            )


def _validated(kind: type[_B], body: bytes) -> _B:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        param = ".".join(str(part) for part in first["loc"]) or None
        where = f"{param}: " if param else ""
        raise bad_request(f"{where}{first['msg']}", param) from None


def _generation(parsed: _Body, prompts: tuple[Prompt, ...], max_tokens: int | None) -> Generation:
    options = parsed.stream_options
    return Generation(
        model=parsed.model,
        prompts=prompts,
        n=parsed.n or 1,
        max_tokens=max_tokens,
        min_tokens=parsed.min_tokens,
        ignore_eos=parsed.ignore_eos,
        stream=bool(parsed.stream),
        include_usage=options is not None and bool(options.include_usage),
        cache_salt=parsed.cache_salt or "",
    )


def _conversation(messages: Iterable[_Message]) -> Prompt:
    """Return the conversation in the simulator's chat template, ready for the assistant's next words.

    A message is an opening token, its text and a closing token. Only text counts: images and audio have no
    size here.
    """
    parts = []
    for message in messages:
        content = message.content
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content)
        parts.append(start_of_message(message.role))
        if content:
            parts.append(tokens_of(content.encode("utf-8", "surrogatepass")))
        parts.append(END_OF_MESSAGE)
    parts.append(start_of_message("assistant"))
    return Prompt(b"".join(parts))


def _prompts(given: str | list[int] | list[str] | list[list[int]]) -> Iterable[Prompt]:
    if isinstance(given, str):
        return [_text_prompt(given)]
    ids: list[int] = []
    prompts: list[Prompt] = []
    for item in given:
        if isinstance(item, int):
            ids.append(item)
        elif isinstance(item, str):
            prompts.append(_text_prompt(item))
        else:
            prompts.append(Prompt(content_of(item or [0])))
    return [Prompt(content_of(ids))] if ids else prompts


def _text_prompt(text: str) -> Prompt:
    return Prompt(tokens_of(text.encode("utf-8", "surrogatepass")))
