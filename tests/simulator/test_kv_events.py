"""The engine's side of KV events, read back with msgpack and with the consumer's own reader."""

from typing import Any

import msgpack
import pytest

from services.simulator.events import AllBlocksCleared, BlocksRemoved, BlocksStored, KvChange
from services.simulator.kv_events import KvEventLog
from services.simulator.tokens import content_of
from services.wire.kv_events import read_batch

A, B, C = (bytes(7) + bytes([index]) for index in (1, 2, 3))


def stored(**changes: Any) -> BlocksStored:
    values: dict[str, Any] = {
        "hashes": (A, B),
        "parent": None,
        "first": 0,
        "content": content_of(range(8)),
        "lora": "",
        "cache_salt": "",
    }
    return BlocksStored(**(values | changes))


def log(*, as_maps: bool = False, kept: int = 8, rank: int = 0) -> KvEventLog:
    return KvEventLog(4, rank, as_maps=as_maps, kept=kept)


def sent(*changes: KvChange, as_maps: bool = False, rank: int = 0) -> Any:
    _, payload = log(as_maps=as_maps, rank=rank).append(changes, 12.5)
    return msgpack.unpackb(payload)


def test_events_are_arrays_with_their_tag_first() -> None:
    batch = sent(
        stored(), stored(hashes=(C,), parent=B, first=2, content=content_of([9] * 4)), BlocksRemoved((A, B)),
        AllBlocksCleared(), rank=3,
    )  # fmt: skip
    assert batch == [
        12.5,
        [
            ["BlockStored", [1, 2], None, list(range(8)), 4, None, "GPU", None],
            ["BlockStored", [3], 2, [9, 9, 9, 9], 4, None, "GPU", None],
            ["BlockRemoved", [1, 2], "GPU"],
            ["AllBlocksCleared"],
        ],
        3,
    ]


def test_events_are_maps_with_their_type_when_asked() -> None:
    batch = sent(stored(), BlocksRemoved((A,)), AllBlocksCleared(), as_maps=True, rank=1)
    assert batch == {
        "ts": 12.5,
        "events": [
            {
                "type": "BlockStored",
                "block_hashes": [1, 2],
                "parent_block_hash": None,
                "token_ids": list(range(8)),
                "block_size": 4,
                "lora_id": None,
                "medium": "GPU",
                "lora_name": None,
            },
            {"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU"},
            {"type": "AllBlocksCleared"},
        ],
        "data_parallel_rank": 1,
    }


def test_what_beside_tokens_makes_a_block_is_told_per_block() -> None:
    (event,) = sent(stored(lora="sql", cache_salt="tenant"), as_maps=True)["events"]
    assert (event["lora_name"], event["lora_id"]) == ("sql", 1)
    assert event["extra_keys"] == [["sql", "tenant"], ["sql"]]
    (later,) = sent(stored(first=2, parent=C, cache_salt="tenant"), as_maps=True)["events"]
    assert "extra_keys" not in later
    (salted,) = sent(stored(cache_salt="tenant"), as_maps=True)["events"]
    assert salted["extra_keys"] == [["tenant"], None]


def test_each_adapter_has_a_number_of_its_own() -> None:
    events = sent(*(stored(lora=name) for name in ("x", "y", "x", "")), as_maps=True)["events"]
    assert [event["lora_id"] for event in events] == [1, 2, 1, None]


def test_batches_are_numbered_from_zero_and_the_last_ones_kept() -> None:
    kept = log(kept=2)
    numbers = [kept.append([AllBlocksCleared()], float(at))[0] for at in range(4)]
    assert numbers == [number.to_bytes(8, "big") for number in range(4)]
    assert [number for number, _ in kept.since(0)] == numbers[2:]
    assert [msgpack.unpackb(payload)[0] for _, payload in kept.since(3)] == [3.0]
    assert list(kept.since(4)) == []


@pytest.mark.parametrize("as_maps", [False, True])
def test_the_picker_reads_either_encoding_alike(as_maps: bool) -> None:
    changes = (stored(lora="sql"), BlocksRemoved((A,)), AllBlocksCleared())
    _, payload = log(as_maps=as_maps, rank=2).append(changes, 1.0)
    _, other = log(as_maps=not as_maps, rank=2).append(changes, 1.0)
    batch = read_batch(payload)
    assert batch == read_batch(other)
    assert len(batch.events) == 3
