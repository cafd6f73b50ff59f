"""KV events on the wire: msgpack batches of vLLM and SGLang, and the frames of publisher and replay.

Both encodings are read: positional arrays with the tag first, and maps with `type` (vLLM's since
vllm#42892). A message is three frames: topic, 8-byte big-endian number, payload `[ts, [events], rank]`. A
publisher is another process, so every size is bounded and whatever is wrong is a `KvEventError`. No socket here.
"""

import array
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from services.core.prefix.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineHash,
    EventBatch,
    KvEvent,
)

MAX_PAYLOAD_BYTES = 8 << 20
"""One batch: a prompt of a million token ids in msgpack has five."""
MAX_EVENTS = 65_536
MAX_BLOCKS_PER_EVENT = 65_536
MAX_TOKENS_PER_EVENT = 1 << 20
MAX_HASH_BYTES = 64
MAX_NAME_CHARS = 256
MAX_EXTRAS_CHARS = 4_096
"""Spelling of what beside tokens decides a block's content; an image's hash has 64 characters."""

END_OF_REPLAY = b"\xff" * 8
"""The number (-1) of the message that ends a replay; its payload is empty."""

_STORED_FIELDS = (
    "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
    "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window",
)  # fmt: skip
_REMOVED_FIELDS = ("block_hashes", "medium", "group_idx")
_NUMBER_BYTES = 8
_TOPIC = re.compile(r"kv@(?P<pod>[^@]{1,256})@(?P<model>.{1,256})", re.DOTALL)
_FULL_ATTENTION = "full_attention"
_NOT_FULL = ("sliding", "mamba", "chunked", "linear", "cross", "encoder")
_MEDIA = {"gpu": "gpu", "cpu": "cpu", "cpu_pinned": "cpu", "host": "cpu", "hbm": "gpu", "device": "gpu"}


class KvEventError(ValueError):
    """The message is none that an engine sends; the text says what is wrong and quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class KvMessage:
    """One message of a publisher. `number` grows by one from batch to batch."""

    topic: str
    number: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class KvTopic:
    """What a topic `kv@<pod>:<port>@<model>` names."""

    pod: str
    model: str


def topic_of(text: str) -> KvTopic | None:
    """Return what a topic in the field's convention names; None for any other topic (vLLM's default is empty)."""
    found = _TOPIC.fullmatch(text)
    return None if found is None else KvTopic(found["pod"], found["model"])


def topic_for(pod: str, model: str) -> str:
    """Return the topic of a pod's `host:port` and the base model it serves."""
    return f"kv@{pod}@{model}"


def read_message(frames: Sequence[bytes]) -> KvMessage:
    """Return the message of three frames: topic, number, payload. Raises `KvEventError`."""
    if len(frames) != 3:
        raise KvEventError(f"a message has 3 frames, not {len(frames)}")
    topic, number, payload = frames
    if len(topic) > 2 * MAX_NAME_CHARS + 4:
        raise KvEventError("the topic is too long")
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise KvEventError(f"the payload has more than {MAX_PAYLOAD_BYTES} bytes")
    return KvMessage(topic.decode("utf-8", "replace"), _number(number), payload)


def replay_request(start: int) -> tuple[bytes, bytes]:
    """Return the frames that ask a publisher's replay socket for its batches from `start` on."""
    return b"", start.to_bytes(_NUMBER_BYTES, "big")


def read_replay(frames: Sequence[bytes]) -> tuple[int, bytes] | None:
    """Return number and payload of one answer of a replay, None for its end. Raises `KvEventError`.

    Publishers send `[number, payload]`, with an empty delimiter or the topic before it or without one.
    """
    if not 2 <= len(frames) <= 4:
        raise KvEventError(f"an answer of a replay has 2 to 4 frames, not {len(frames)}")
    number, payload = frames[-2:]
    if number == END_OF_REPLAY:
        return None
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise KvEventError(f"the payload has more than {MAX_PAYLOAD_BYTES} bytes")
    return _number(number), payload


def read_batch(payload: bytes) -> EventBatch:
    """Decode one payload. Events of kinds not known here are left out. Raises `KvEventError`."""
    try:
        # Lengths that the payload claims are held against its own.
        batch = msgpack.unpackb(payload, strict_map_key=False, raw=False, unicode_errors="replace")
    except (ValueError, TypeError, RecursionError, OverflowError, msgpack.UnpackException) as error:
        raise KvEventError(f"no msgpack: {type(error).__name__}") from None
    if isinstance(batch, dict):
        events, rank = batch.get("events"), batch.get("data_parallel_rank")
    elif isinstance(batch, list) and len(batch) >= 2:
        events, rank = batch[1], batch[2] if len(batch) > 2 else None
    else:
        raise KvEventError("the payload is no batch")
    if not isinstance(events, list) or len(events) > MAX_EVENTS:
        raise KvEventError("the batch has no list of events, or too many")
    return EventBatch(
        tuple(event for event in map(_event, events) if event is not None), _small(rank, "rank")
    )


def _event(event: Any) -> KvEvent | None:
    if isinstance(event, dict):
        tag, fields = event.get("type"), event
    elif isinstance(event, list) and event:
        tag = event[0]
        names = _STORED_FIELDS if tag == "BlockStored" else _REMOVED_FIELDS
        # Fields that a newer engine appends are beyond the names and fall away.
        fields = dict(zip(names, event[1:], strict=False))
    else:
        raise KvEventError("an event is neither an array nor a map")
    if tag == "BlockStored":
        return _stored(fields)
    if tag == "BlockRemoved":
        return BlockRemoved(_hashes(fields), _medium(fields), _small(fields.get("group_idx"), "group_idx"))
    return AllBlocksCleared() if tag == "AllBlocksCleared" else None


def _stored(fields: Mapping[str, Any]) -> BlockStored:
    hashes = _hashes(fields)
    block_tokens = fields.get("block_size")
    if not isinstance(block_tokens, int) or not 0 < block_tokens <= MAX_TOKENS_PER_EVENT:
        raise KvEventError("block_size is no positive number")
    tokens = _tokens(fields.get("token_ids"))
    if tokens and len(tokens) != 4 * block_tokens * len(hashes):
        raise KvEventError("token_ids are not block_size for each hash")
    parent = fields.get("parent_block_hash")
    adapter = fields.get("lora_name")
    if adapter is not None and not (isinstance(adapter, str) and len(adapter) <= MAX_NAME_CHARS):
        raise KvEventError("lora_name is no name")
    lora_id = fields.get("lora_id")
    kind = fields.get("kv_cache_spec_kind")
    return BlockStored(
        hashes,
        None if parent is None or parent == 0 else _hash(parent),
        tokens,
        block_tokens,
        adapter or None,
        adapter_unnamed=not adapter and lora_id is not None,
        medium=_medium(fields),
        group=_small(fields.get("group_idx"), "group_idx"),
        extras=_extras(fields.get("extra_keys"), adapter, lora_id, len(hashes)),
        full_attention=fields.get("kv_cache_spec_sliding_window") is None and _is_full(kind),
    )


def _is_full(kind: Any) -> bool:
    if not isinstance(kind, str) or _FULL_ATTENTION in kind:
        return True
    return not any(word in kind for word in _NOT_FULL)


def _hashes(fields: Mapping[str, Any]) -> tuple[EngineHash, ...]:
    hashes = fields.get("block_hashes")
    if not isinstance(hashes, list) or len(hashes) > MAX_BLOCKS_PER_EVENT:
        raise KvEventError("block_hashes are no list, or too many")
    return tuple(map(_hash, hashes))


def _hash(value: Any) -> EngineHash:
    if value.__class__ is int or (value.__class__ is bytes and 0 < len(value) <= MAX_HASH_BYTES):
        named: EngineHash = value
        return named
    raise KvEventError("a block hash is neither a number nor a few bytes")


def _tokens(ids: Any) -> bytes:
    """Pack token ids, 4 bytes each, little-endian."""
    if not isinstance(ids, list) or len(ids) > MAX_TOKENS_PER_EVENT:
        raise KvEventError("token_ids are no list, or too many")
    try:
        packed = array.array("I", ids)
    except (TypeError, OverflowError):
        raise KvEventError("a token id is no unsigned 32-bit number") from None
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _extras(keys: Any, adapter: Any, lora_id: Any, blocks: int) -> tuple[tuple[str, ...], ...]:
    """Return one spelling of each block's extra keys, without the adapter, which the event names by itself."""
    if keys is None:
        return ()
    if not isinstance(keys, list) or len(keys) > blocks:
        raise KvEventError("extra_keys are no list, or more than blocks")
    spelt = []
    for block in keys:
        found = () if block is None else tuple(block) if isinstance(block, list) else (block,)
        # The adapter comes first and once; an image may bear the same number.
        if found and (adapter is not None or lora_id is not None) and found[0] in (adapter, lora_id):
            found = found[1:]
        names = tuple(key if isinstance(key, str) else repr(key) for key in found)
        if sum(map(len, names)) > MAX_EXTRAS_CHARS:
            raise KvEventError("extra_keys are too long")
        spelt.append(names)
    return tuple(spelt) if any(spelt) else ()


def _medium(fields: Mapping[str, Any]) -> str:
    medium = fields.get("medium")
    if medium is None:
        return "gpu"
    if not isinstance(medium, str) or len(medium) > MAX_NAME_CHARS:
        raise KvEventError("the medium is no name")
    lower = medium.lower()
    return _MEDIA.get(lower, lower)


def _small(value: Any, what: str) -> int:
    if value is None:
        return 0
    if value.__class__ is not int or not 0 <= value < 1 << 16:
        raise KvEventError(f"{what} is no small number")
    number: int = value
    return number


def _number(frame: bytes) -> int:
    if len(frame) != _NUMBER_BYTES:
        raise KvEventError(f"a number has 8 bytes, not {len(frame)}")
    return int.from_bytes(frame, "big")
