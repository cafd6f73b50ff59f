import struct
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.prefix.events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch
from services.wire.kv_events import (
    END_OF_REPLAY,
    MAX_PAYLOAD_BYTES,
    KvEventError,
    KvMessage,
    KvTopic,
    read_batch,
    read_message,
    read_replay,
    replay_request,
    topic_for,
    topic_of,
)

STORED: dict[str, Any] = {
    "block_hashes": [11, b"\x07" * 32],
    "parent_block_hash": 9,
    "token_ids": [1, 2, 3, 2**32 - 1],
    "block_size": 2,
    "lora_id": None,
    "medium": "GPU",
    "lora_name": None,
}
TOKENS = struct.pack("<4I", 1, 2, 3, 2**32 - 1)


def batch(*events: Any, rank: Any = None, as_maps: bool = False) -> bytes:
    if as_maps:
        encoded: bytes = msgpack.packb({"ts": 1.5, "events": events, "data_parallel_rank": rank})
    else:
        encoded = msgpack.packb([1.5, events, rank])
    return encoded


def as_array(tag: str, fields: dict[str, Any]) -> list[Any]:
    return [tag, *fields.values()]


def stored(**changes: Any) -> BlockStored:
    """Return what one event of `STORED` with `changes` is read as, from its map form."""
    (event,) = read_batch(batch({"type": "BlockStored", **STORED, **changes})).events
    assert isinstance(event, BlockStored)
    return event


@pytest.mark.parametrize("as_maps", [False, True])
def test_both_encodings_say_the_same(as_maps: bool) -> None:
    removed = {"block_hashes": [11], "medium": "CPU"}
    if as_maps:
        events: list[Any] = [
            {"type": "BlockStored", **STORED},
            {"type": "BlockRemoved", **removed},
            {"type": "AllBlocksCleared"},
        ]
    else:
        events = [as_array("BlockStored", STORED), as_array("BlockRemoved", removed), ["AllBlocksCleared"]]
    assert read_batch(batch(*events, rank=3, as_maps=as_maps)) == EventBatch(
        (
            BlockStored((11, b"\x07" * 32), 9, TOKENS, 2),
            BlockRemoved((11,), "cpu"),
            AllBlocksCleared(),
        ),
        3,
    )


def test_old_and_new_engines_send_fewer_and_more_fields() -> None:
    short = ["BlockStored", [11], None, [1, 2], 2]
    long = [*as_array("BlockStored", STORED), None, 1, "full_attention", None, "local", "owner", "session"]
    assert read_batch(msgpack.packb([1.5, [short]])).events == (
        BlockStored((11,), None, struct.pack("<2I", 1, 2), 2),
    )
    assert read_batch(batch(long)).events == (BlockStored((11, b"\x07" * 32), 9, TOKENS, 2, group=1),)


def test_kinds_of_events_not_known_here_are_left_out() -> None:
    assert read_batch(batch(["BlockMoved", 1], {"type": "New"}, {}, ["AllBlocksCleared"])).events == (
        AllBlocksCleared(),
    )


def test_a_root_has_no_parent_in_either_spelling() -> None:
    assert stored(parent_block_hash=0).parent is None
    assert stored(parent_block_hash=None).parent is None


def test_adapters_are_told_by_name() -> None:
    named = stored(lora_name="sql", lora_id=3, extra_keys=[["sql", "salt"], ["sql"]])
    assert (named.adapter, named.adapter_unnamed, named.extras) == ("sql", False, (("salt",), ()))
    unnamed = stored(lora_id=3, extra_keys=[[3], [3]])
    assert (unnamed.adapter, unnamed.adapter_unnamed, unnamed.extras) == (None, True, ())


def test_extra_keys_have_one_spelling() -> None:
    assert stored(extra_keys=[None, ["image", ["hash", 7]]]).extras == ((), ("image", "['hash', 7]"))
    assert stored(extra_keys=["image"]).extras == (("image",),)
    assert stored(extra_keys=[None, None]).extras == ()


@pytest.mark.parametrize(
    ("fields", "full"),
    [
        ({}, True),
        ({"kv_cache_spec_kind": "full_attention"}, True),
        ({"kv_cache_spec_kind": "mla_attention"}, True),
        ({"kv_cache_spec_kind": "sliding_window"}, False),
        ({"kv_cache_spec_kind": "mamba"}, False),
        ({"kv_cache_spec_sliding_window": 4096}, False),
    ],
)
def test_layers_without_full_attention_are_told_apart(fields: dict[str, Any], full: bool) -> None:
    assert stored(**fields).full_attention is full


def test_blocks_may_move_between_media_by_name_alone() -> None:
    moved = stored(token_ids=[], medium="CPU_PINNED", parent_block_hash=None)
    assert (moved.tokens, moved.medium) == (b"", "cpu")
    assert stored(medium=None).medium == "gpu"
    assert stored(medium="SSD").medium == "ssd"


BAD: dict[str, Any] = {
    "token_ids": [[1, 2, 3], [1, 2, 3, -1], [1, 2, 3, 2**32], [1, 2, 3, "x"], [1, 2, 3, 1.5], None, {}],
    "block_hashes": [None, ["x"], [1.5], [True], [b""], [b"x" * 65], [None, 1]],
    "parent_block_hash": ["x", [1], b""],
    "block_size": [0, -2, "2", None, 1 << 40],
    "medium": [7, "x" * 300],
    "lora_name": [7, "x" * 300],
    "group_idx": [-1, "x", 1 << 20, True],
    "extra_keys": [7, [None] * 3, [["x" * 5000]]],
}


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in BAD.items() for value in values]
)
def test_an_event_with_a_bad_field_is_a_typed_error(field: str, value: Any) -> None:
    with pytest.raises(KvEventError):
        stored(**{field: value})


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\xff" * 100,
        b"\x91" * 3000 + b"\xc0",
        msgpack.packb(7),
        msgpack.packb([1.0]),
        msgpack.packb([1.0, 7]),
        msgpack.packb({"ts": 1.0}),
        msgpack.packb([1.0, [7]]),
        msgpack.packb([1.0, [[]]]),
        msgpack.packb([1.0, [], "rank"]),
        msgpack.packb([1.0, []]) + b"more",
        # An array that says it has four billion elements.
        b"\xdd\xff\xff\xff\xff",
        msgpack.packb([1.0, [["AllBlocksCleared"]] * 70_000]),
    ],
)
def test_what_is_no_batch_is_a_typed_error(payload: bytes) -> None:
    with pytest.raises(KvEventError):
        read_batch(payload)


def test_messages_have_three_frames_and_a_number_of_eight_bytes() -> None:
    number = (513).to_bytes(8, "big")
    assert read_message([b"kv@a:8000@llama", number, b"x"]) == KvMessage("kv@a:8000@llama", 513, b"x")
    for frames in (
        [b"", number],
        [b"", b"", number, b"x"],
        [b"", b"\0", b"x"],
        [b"t" * 600, number, b"x"],
        [b"", number, b"x" * (MAX_PAYLOAD_BYTES + 1)],
    ):
        with pytest.raises(KvEventError):
            read_message(frames)


def test_topics_in_the_fields_convention_name_pod_and_model() -> None:
    assert topic_of(topic_for("10.0.0.1:8000", "org/llama@v2")) == KvTopic("10.0.0.1:8000", "org/llama@v2")
    assert topic_of("") is None
    assert topic_of("kv@only") is None


def test_a_replay_is_asked_for_and_answered_until_its_end() -> None:
    number = (7).to_bytes(8, "big")
    assert replay_request(7) == (b"", number)
    for before in ([], [b""], [b"topic"], [b"", b"topic"]):
        assert read_replay([*before, number, b"x"]) == (7, b"x")
        assert read_replay([*before, END_OF_REPLAY, b""]) is None
    for frames in (
        [number],
        [b""] * 3 + [number, b"x"],
        [b"\0", b"x"],
        [number, b"x" * (MAX_PAYLOAD_BYTES + 1)],
    ):
        with pytest.raises(KvEventError):
            read_replay(frames)


plain = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
)
values = st.recursive(plain, lambda inner: st.lists(inner, max_size=4), max_leaves=6)


@settings(max_examples=80)
@given(
    st.lists(
        st.builds(
            lambda tag, rest, fields: {"type": tag, **fields} if rest is None else [tag, *rest],
            st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared"]) | values,
            st.none() | st.lists(values, max_size=9),
            st.dictionaries(st.sampled_from([*STORED, "extra_keys", "group_idx"]), values),
        ),
        max_size=4,
    )
)
def test_hostile_events_are_read_or_refused(events: list[Any]) -> None:
    """Whatever stands in an event, decoding returns a batch or raises `KvEventError`, nothing else."""
    try:
        read = read_batch(batch(*events))
    except KvEventError:
        return
    assert len(read.events) <= len(events)


@settings(max_examples=80)
@given(st.binary(max_size=200))
def test_hostile_bytes_are_read_or_refused(payload: bytes) -> None:
    """Whatever bytes a publisher sends, decoding returns a batch or raises `KvEventError`, nothing else."""
    try:
        read_batch(payload)
    except KvEventError:
        return
