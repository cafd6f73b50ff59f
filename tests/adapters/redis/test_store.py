"""What only a real Redis can show: scripts lost, roles changed, connections cut, calls cancelled."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import redis

from deploy.stack.redis import RedisServer
from services.adapters.ports import ChangeKind, StreamGapError, UnreachableError
from services.adapters.redis.connection import POOL_CONNECTIONS
from services.adapters.redis.store import RedisFleetStore
from services.adapters.system.ids import SystemIds
from services.core.fleet import ReportId
from services.core.units import ms, seconds
from tests.support.wait import eventually

HEALTH = ChangeKind.HEALTH


@pytest.fixture
async def store(own_redis: RedisServer) -> AsyncIterator[RedisFleetStore]:
    store = RedisFleetStore(own_redis.url, "fleet", "eu-west", SystemIds())
    yield store
    await store.close()


@pytest.fixture
def operator(own_redis: RedisServer) -> "redis.Redis":
    """A second client, as an operator's redis-cli."""
    return redis.Redis(port=own_redis.port, decode_responses=True)


async def put(store: RedisFleetStore, sequence: int, key: str = "eu-1") -> bool:
    return await store.put(HEALTH, key, ReportId(1, sequence), f"report {sequence}".encode(), live=True)


async def test_the_layout_is_one_hash_tag_and_one_stream_entry_per_version(
    store: RedisFleetStore, operator: "redis.Redis"
) -> None:
    await put(store, 1)
    await store.put(ChangeKind.PODS, "eu-1/llama", ReportId(4, 2), b"pods", live=False)
    await store.put(ChangeKind.POLICY, "snapshot", ReportId(1, 0), b"policy", live=False)
    await store.remove(HEALTH, "eu-1")
    claimed = await store.claim()
    await store.set_ready(claimed)
    tag = "gir:{fleet.eu-west}"
    assert operator.keys("*") != []
    assert set(map(str, operator.scan_iter())) == {
        f"{tag}:meta",
        f"{tag}:changes",
        f"{tag}:pods",
        f"{tag}:policy",
    }
    assert operator.hgetall(f"{tag}:meta") == {
        "incarnation": claimed.incarnation,
        "version": "4",
        "ready": claimed.run_id,
    }
    assert operator.hgetall(f"{tag}:pods") == {"eu-1/llama": "4 2\npods"}
    assert operator.xrange(f"{tag}:changes") == [
        ("1-0", {"kind": "health", "key": "eu-1", "live": "1", "bytes": "report 1"}),
        ("2-0", {"kind": "pods", "key": "eu-1/llama", "live": "0", "bytes": "pods"}),
        ("3-0", {"kind": "policy", "key": "snapshot", "live": "0", "bytes": "policy"}),
        ("4-0", {"kind": "health", "key": "eu-1", "live": "1"}),
    ]


async def test_scripts_lost_by_the_server_are_loaded_again(
    store: RedisFleetStore, operator: "redis.Redis"
) -> None:
    await put(store, 1)
    operator.script_flush()
    assert await put(store, 2)
    assert await store.remove(HEALTH, "eu-1")


async def test_f115_a_demoted_master_is_left_and_writes_recover_by_themselves(
    store: RedisFleetStore, own_redis: RedisServer, operator: "redis.Redis"
) -> None:
    await put(store, 1)
    operator.replicaof("127.0.0.1", str(own_redis.port + 1))
    with pytest.raises(UnreachableError, match="read only"):
        await put(store, 2)
    # The refusing node's connections are gone, so that the next call resolves the name anew.
    assert [client["addr"] for client in operator.client_list() if client["cmd"] == "evalsha"] == []
    operator.replicaof("NO", "ONE")
    assert await put(store, 2)


async def test_f116_while_no_master_answers_each_call_fails_within_its_deadline_and_the_loop_stays_free(
    store: RedisFleetStore, own_redis: RedisServer
) -> None:
    """Sentinel is not part of this build: what holds already is that a call is bounded and recovery needs no restart."""
    await put(store, 1)
    own_redis.kill()
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.get_running_loop().create_task(count_turns())
    with pytest.raises(UnreachableError):
        await put(store, 2)
    counting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await counting
    assert turns > 0
    own_redis.start()
    assert await put(store, 2)


async def test_a_frozen_server_is_unreachable_and_its_late_replies_belong_to_nobody(
    store: RedisFleetStore, own_redis: RedisServer
) -> None:
    await put(store, 1)
    listing = await store.list()
    own_redis.pause()
    outcomes = await asyncio.gather(
        put(store, 2),
        store.meta(),
        store.list(),
        store.tail(listing.meta.version, ms(10)),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [UnreachableError] * 4
    own_redis.resume()
    # The frozen server may still carry out what it had received; replies are matched all the same.
    assert await put(store, 3)
    assert (await store.list()).entries[0].payload == b"report 3"
    assert (await store.meta()).run_id == listing.meta.run_id


async def test_connections_cut_by_the_server_cost_no_call(
    store: RedisFleetStore, operator: "redis.Redis"
) -> None:
    await asyncio.gather(*(put(store, 1, f"eu-{index}") for index in range(POOL_CONNECTIONS)))
    operator.client_kill_filter(_type="normal", skipme=True)
    assert await put(store, 2, "eu-0")
    assert len((await store.list()).entries) == POOL_CONNECTIONS


async def test_a_cancelled_call_never_leaves_its_reply_for_the_next_one(store: RedisFleetStore) -> None:
    """Invariant: whatever the loop turn at which a call is cancelled, every later reply answers its own call."""
    await put(store, 0)
    loop = asyncio.get_running_loop()
    for turns in range(40):
        doomed = [
            loop.create_task(put(store, turns + 1, "doomed")),
            loop.create_task(store.meta()),
            loop.create_task(store.list()),
            loop.create_task(store.tail(0, ms(0))),
        ]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in doomed:
            task.cancel()
        await asyncio.gather(*doomed, return_exceptions=True)
        assert await put(store, turns + 1) is True
        meta = await store.meta()
        payloads = {entry.key: entry.payload for entry in (await store.list()).entries}
        assert payloads["eu-1"] == f"report {turns + 1}".encode()
        tail = await store.tail(meta.version - 1, ms(0))
        # A doomed put that had been sent may still be carried out, so more may have come since.
        assert tail[0].version == meta.version


async def test_a_loop_over_calls_ends_when_it_is_cancelled(store: RedisFleetStore) -> None:
    """Invariant: whatever the loop turn of the cancellation, it is not swallowed with the reply it coincides with."""

    async def for_ever() -> None:
        while True:
            await store.meta()

    for turns in range(200):
        looping = asyncio.get_running_loop().create_task(for_ever())
        for _ in range(turns):
            await asyncio.sleep(0)
        looping.cancel()
        done, _ = await asyncio.wait((looping,), timeout=5)
        assert done, f"cancelled after {turns} turns and still calling"


async def test_a_cancelled_blocking_tail_frees_its_connection(
    store: RedisFleetStore, operator: "redis.Redis"
) -> None:
    await put(store, 1)
    await store.list()
    blocked = asyncio.get_running_loop().create_task(store.tail(1, seconds(30)))
    await eventually(lambda: operator.info("clients")["blocked_clients"] == 1)
    blocked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await blocked
    await put(store, 2)
    assert [change.version for change in await store.tail(1, ms(0))] == [2]


async def test_calls_beyond_the_pool_wait_and_connections_stay_bounded(
    store: RedisFleetStore, operator: "redis.Redis"
) -> None:
    results = await asyncio.gather(*(put(store, 1, f"eu-{index}") for index in range(20 * POOL_CONNECTIONS)))
    assert all(results)
    assert len(operator.client_list()) <= POOL_CONNECTIONS + 1


async def test_a_full_server_refuses_writes_as_unreachable_and_reads_go_on(
    store: RedisFleetStore, operator: "redis.Redis"
) -> None:
    await put(store, 1)
    operator.config_set("maxmemory", "1")
    with pytest.raises(UnreachableError, match="maxmemory"):
        await put(store, 2)
    assert (await store.list()).entries[0].payload == b"report 1"
    operator.config_set("maxmemory", "0")
    assert await put(store, 2)


async def test_a_store_that_lost_only_its_meta_starts_anew(
    store: RedisFleetStore, operator: "redis.Redis"
) -> None:
    await put(store, 1, "eu-1")
    before = await store.claim()
    operator.delete("gir:{fleet.eu-west}:meta")
    assert await put(store, 1, "eu-2")
    after = await store.meta()
    assert after.incarnation != before.incarnation
    assert [entry.key for entry in (await store.list()).entries] == ["eu-2"]


async def test_a_lost_stream_is_a_gap(store: RedisFleetStore, operator: "redis.Redis") -> None:
    await put(store, 1)
    await store.list()
    await put(store, 2)
    operator.delete("gir:{fleet.eu-west}:changes")
    with pytest.raises(StreamGapError, match="trimmed"):
        await store.tail(1, ms(0))


async def test_a_change_of_a_kind_this_build_does_not_know_asks_for_a_new_list(
    store: RedisFleetStore, operator: "redis.Redis"
) -> None:
    await put(store, 1)
    await store.list()
    operator.hincrby("gir:{fleet.eu-west}:meta", "version", 1)
    operator.xadd("gir:{fleet.eu-west}:changes", {"kind": "quota", "key": "k", "live": "1"}, id="2-0")
    with pytest.raises(StreamGapError, match="quota"):
        await store.tail(1, ms(0))
    assert [entry.key for entry in (await store.list()).entries] == ["eu-1"]


async def test_regions_and_fleets_do_not_see_each_other(
    store: RedisFleetStore, own_redis: RedisServer
) -> None:
    other = RedisFleetStore(own_redis.url, "fleet", "us-east", SystemIds())
    await put(store, 1)
    assert (await other.list()).entries == ()
    assert (await other.meta()).incarnation == ""
    await other.close()
