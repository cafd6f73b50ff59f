"""What goes into an engine and what comes out: requests, and events in the past tense.

Frozen values; no behaviour. Apart from the engine because the live server, the virtual-time fleet and the
tests all speak these words without needing the engine's insides.
"""

import enum
from dataclasses import dataclass

from services.core.units import Instant


class FinishReason(enum.Enum):
    """Why a request ended; the values are vLLM's `finished_reason` label and OpenAI's `finish_reason`."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One sequence to generate.

    `block_hashes` are chained hashes of the leading full blocks of the prompt and the answer after it; fewer
    than they hold means the rest is not shareable. `output_tokens` is decided by the caller (at least 1),
    `natural_end` says whether the answer ends there by itself. Only `streamed` requests get a
    `TokensProduced` per step; others cost nothing between their first token and their end. `lora` names the
    adapter it needs, empty for the base model. `content` (the tokens behind the hashes, four bytes each) and
    `cache_salt` are what an engine with a KV journal tells of its blocks; else they may stay empty.
    """

    request_id: str
    prompt_tokens: int
    output_tokens: int
    block_hashes: tuple[bytes, ...] = ()
    natural_end: bool = False
    streamed: bool = False
    lora: str = ""
    content: bytes = b""
    cache_salt: str = ""


@dataclass(frozen=True, slots=True)
class FirstToken:
    """The prompt was computed and the first output token exists; `cached_tokens` of the prompt were reused."""

    request_id: str
    at: Instant
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class TokensProduced:
    """One step gave each of the streamed `request_ids` one further token (after its first)."""

    at: Instant
    request_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Preempted:
    """Blocks ran out: the request lost its cache and waits to be computed again."""

    request_id: str
    at: Instant


@dataclass(frozen=True, slots=True)
class Finished:
    """The request left the engine. Instants are None for phases an aborted request never reached."""

    request_id: str
    at: Instant
    reason: FinishReason
    output_tokens: int
    cached_tokens: int
    submitted_at: Instant
    scheduled_at: Instant | None
    first_token_at: Instant | None


EngineEvent = FirstToken | TokensProduced | Preempted | Finished


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """Consecutive blocks became reusable, `parent` (None at the root) being the one before the first.

    `first` is the index of the first in its sequence; `content` holds their tokens, four bytes each.
    """

    hashes: tuple[bytes, ...]
    parent: bytes | None
    first: int
    content: bytes
    lora: str
    cache_salt: str


@dataclass(frozen=True, slots=True)
class BlocksRemoved:
    """Blocks were evicted, the oldest first."""

    hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """Every reusable block is gone."""


KvChange = BlocksStored | BlocksRemoved | AllBlocksCleared
"""What happened to the blocks that later requests may reuse, in order."""
