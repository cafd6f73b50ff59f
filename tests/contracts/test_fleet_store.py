"""What every `FleetStore` promises, on memory and on a real Redis."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from services.adapters.ports import (
    Change,
    ChangeKind,
    FleetStore,
    StreamGapError,
    UnreachableError,
)
from services.core.fleet import ReportId
from services.core.units import ms, seconds
from tests.contracts.conftest import STREAM_MAX_CHANGES, StorePart

HEALTH, PODS, POLICY = ChangeKind.HEALTH, ChangeKind.PODS, ChangeKind.POLICY
OpenStore = Callable[[], FleetStore]


async def put(store: FleetStore, key: str, epoch: int, sequence: int, *, live: bool = True) -> bool:
    payload = f"{key} {epoch} {sequence}".encode()
    return await store.put(HEALTH, key, ReportId(epoch, sequence), payload, live=live)


async def stored(store: FleetStore) -> dict[tuple[ChangeKind, str], bytes | None]:
    return {(change.kind, change.key): change.payload for change in (await store.list()).entries}


async def test_an_empty_store_has_no_incarnation_no_version_and_is_not_ready(open_store: OpenStore) -> None:
    meta = await open_store().meta()
    assert (meta.incarnation, meta.version, meta.ready) == ("", 0, False)
    assert meta.run_id
    assert (await open_store().list()).entries == ()


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ((1, 1), (1, 2)),
        ((1, 9), (1, 10)),
        ((1, 10), (2, 1)),
        ((9, 5), (10, 0)),
        # Neighbours that are one and the same number as doubles.
        ((2**53, 0), (2**53 + 1, 0)),
        ((7, 2**62), (7, 2**62 + 1)),
    ],
)
async def test_only_a_newer_epoch_and_sequence_replaces(
    open_store: OpenStore, older: tuple[int, int], newer: tuple[int, int]
) -> None:
    store = open_store()
    assert await put(store, "eu-1", *older)
    assert await put(store, "eu-1", *newer)
    assert not await put(store, "eu-1", *newer)
    assert not await put(store, "eu-1", *older)
    assert await stored(store) == {(HEALTH, "eu-1"): f"eu-1 {newer[0]} {newer[1]}".encode()}
    assert (await store.meta()).version == 2


async def test_f143_three_deliveries_in_swapped_order_are_applied_once(open_store: OpenStore) -> None:
    store = open_store()
    assert [await put(store, "eu-1", 1, sequence) for sequence in (5, 4, 5)] == [True, False, False]
    changes = await store.tail(0, ms(0))
    assert [(change.version, change.payload) for change in changes] == [(1, b"eu-1 1 5")]


async def test_any_bytes_travel_unharmed_and_kinds_do_not_mix(open_store: OpenStore) -> None:
    store = open_store()
    payload = bytes(range(256)) * 257 + b"\n7 7\n"
    for kind in ChangeKind:
        assert await store.put(kind, "same-key", ReportId(3, 3), payload + kind.value.encode(), live=True)
    expected: dict[tuple[ChangeKind, str], bytes | None] = {
        (kind, "same-key"): payload + kind.value.encode() for kind in ChangeKind
    }
    assert await stored(store) == expected
    changes = await store.tail(0, ms(0))
    assert {(change.kind, change.key): change.payload for change in changes} == expected


async def test_a_list_is_true_at_its_version_and_the_tail_continues_there(open_store: OpenStore) -> None:
    writer, reader = open_store(), open_store()
    await put(writer, "eu-1", 1, 1)
    await put(writer, "eu-2", 1, 1)
    listing = await reader.list()
    assert listing.meta.version == 2
    assert {(entry.key, entry.version, entry.live) for entry in listing.entries} == {
        ("eu-1", 2, False),
        ("eu-2", 2, False),
    }
    await put(writer, "eu-1", 1, 2, live=False)
    await writer.remove(HEALTH, "eu-2")
    assert list(await reader.tail(2, ms(0))) == [
        Change(3, HEALTH, "eu-1", b"eu-1 1 2", live=False),
        Change(4, HEALTH, "eu-2", None, live=True),
    ]


async def test_f139_removing_is_idempotent_also_when_it_comes_first(open_store: OpenStore) -> None:
    store = open_store()
    assert not await store.remove(HEALTH, "eu-1")
    assert (await store.meta()).version == 0
    await put(store, "eu-1", 1, 1)
    assert await store.remove(HEALTH, "eu-1")
    assert not await store.remove(HEALTH, "eu-1")
    assert await stored(store) == {}
    # A removed key is free: the publisher may come back under any pair.
    assert await put(store, "eu-1", 1, 1)


async def test_a_tail_without_news_returns_empty_after_its_wait(open_store: OpenStore) -> None:
    store = open_store()
    await put(store, "eu-1", 1, 1)
    assert list(await store.tail(1, ms(20))) == []
    assert list(await store.tail(1, ms(0))) == []


async def test_a_waiting_tail_is_woken_by_the_next_change(open_store: OpenStore) -> None:
    writer, reader = open_store(), open_store()
    await put(writer, "eu-1", 1, 1)
    await reader.list()
    async with asyncio.TaskGroup() as scope:
        waiting = scope.create_task(reader.tail(1, seconds(30)))
        scope.create_task(put(writer, "eu-1", 1, 2))
    assert [change.version for change in waiting.result()] == [2]


async def test_a_stream_trimmed_past_the_reader_is_a_gap_and_a_list_mends_it(open_store: OpenStore) -> None:
    writer, reader = open_store(), open_store()
    await put(writer, "eu-1", 1, 1)
    await reader.list()
    for sequence in range(2, STREAM_MAX_CHANGES + 3):
        await put(writer, "eu-1", 1, sequence)
    with pytest.raises(StreamGapError):
        await reader.tail(1, ms(0))
    # The oldest one kept is still a continuation for a reader that stands just before it.
    assert len(await reader.tail(2, ms(0))) == STREAM_MAX_CHANGES
    assert await reader.tail((await reader.list()).meta.version, ms(0)) == []


async def test_two_writers_at_once_leave_the_newest_and_one_unbroken_stream(open_store: OpenStore) -> None:
    first, second, reader = open_store(), open_store(), open_store()
    await reader.list()
    rounds = STREAM_MAX_CHANGES // 2

    async def write(store: FleetStore) -> int:
        return sum([await put(store, "eu-1", 1, sequence) for sequence in range(1, rounds + 1)])

    accepted = await asyncio.gather(write(first), write(second))
    # Each pair was applied by exactly one of the two; a pair overtaken by a newer one by neither.
    assert 1 <= sum(accepted) <= rounds
    assert await stored(reader) == {(HEALTH, "eu-1"): f"eu-1 1 {rounds}".encode()}
    versions = [change.version for change in await reader.tail(0, ms(0))]
    assert versions == list(range(1, sum(accepted) + 1))


async def test_claiming_names_an_empty_store_once(open_store: OpenStore) -> None:
    first, second = open_store(), open_store()
    claimed = await asyncio.gather(first.claim(), second.claim())
    assert claimed[0].incarnation == claimed[1].incarnation != ""
    await put(first, "eu-1", 1, 1)
    assert (await second.claim()).incarnation == claimed[0].incarnation


async def test_the_first_write_names_the_store_too(open_store: OpenStore) -> None:
    store = open_store()
    await put(store, "eu-1", 1, 1)
    assert (await store.meta()).incarnation


async def test_ready_is_seen_by_all_until_the_store_is_another(own_store: StorePart) -> None:
    projector, view = own_store.open(), own_store.open()
    claimed = await projector.claim()
    assert not (await view.meta()).ready
    assert await projector.set_ready(claimed)
    assert (await view.meta()).ready
    own_store.flush()
    assert not (await view.meta()).ready
    assert not await projector.set_ready(claimed)
    assert not (await view.meta()).ready
    renewed = await projector.claim()
    assert renewed.incarnation != claimed.incarnation
    assert await projector.set_ready(renewed)


async def test_a_flush_while_tailing_is_a_gap_even_when_nobody_writes(own_store: StorePart) -> None:
    store = own_store.open()
    await put(store, "eu-1", 1, 1)
    await store.list()
    own_store.flush()
    with pytest.raises(StreamGapError):
        await store.tail(1, ms(20))


async def test_a_flush_is_a_gap_even_when_the_new_store_is_at_the_same_version(own_store: StorePart) -> None:
    store, other = own_store.open(), own_store.open()
    await put(store, "eu-1", 1, 1)
    version = (await store.list()).meta.version
    own_store.flush()
    await put(other, "eu-9", 1, 1)
    with pytest.raises(StreamGapError):
        await store.tail(version, ms(0))
    listing = await store.list()
    assert [entry.key for entry in listing.entries] == ["eu-9"]
    assert await store.tail(listing.meta.version, ms(0)) == []


async def test_every_call_says_unreachable_in_an_outage_and_works_after_it(own_store: StorePart) -> None:
    store = own_store.open()
    await put(store, "eu-1", 1, 1)
    before = await store.claim()
    await store.list()
    own_store.stop()
    calls: list[Callable[[], Awaitable[object]]] = [
        store.meta,
        store.claim,
        store.list,
        lambda: store.set_ready(before),
        lambda: store.tail(1, ms(20)),
        lambda: store.remove(HEALTH, "eu-1"),
        lambda: put(store, "eu-1", 1, 2),
    ]
    for call in calls:
        with pytest.raises(UnreachableError):
            await call()
    own_store.start()
    assert await put(store, "eu-1", 1, 2)


async def test_a_restart_without_data_is_another_store(own_store: StorePart) -> None:
    store = own_store.open()
    await put(store, "eu-1", 1, 1)
    await store.set_ready(await store.claim())
    before = (await store.list()).meta
    own_store.restart_empty()
    after = await store.meta()
    assert (after.incarnation, after.version, after.ready) == ("", 0, False)
    assert after.run_id != before.run_id
    with pytest.raises(StreamGapError):
        await store.tail(before.version, ms(0))
