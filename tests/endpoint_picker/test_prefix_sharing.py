import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.adapters.memory.prefix_feed import MemoryPrefixFeed, MemoryPrefixHub
from services.adapters.metric_names.catalogue import METRICS
from services.adapters.system.clock import SystemClock
from services.adapters.system.ids import SystemIds
from services.core.prefix.blocks import Prompt
from services.endpoint_picker.prefix import PrefixIndexes
from services.endpoint_picker.prefix_sharing import BATCH_BLOCKS, WAITING_BLOCKS, PrefixSharing
from services.wire.prefix_batches import PrefixSeal
from tests.support.wait import eventually

SECRET = b"s" * 32
PROMPT = Prompt(b"x" * 4 * 640)


class Replica:
    """One picker: its indexes, and its share in the feed."""

    def __init__(self, hub: MemoryPrefixHub, secret: bytes = SECRET) -> None:
        clock = SystemClock()
        self.indexes = PrefixIndexes(secret)
        for pod in ("a", "b"):
            self.indexes.observe(pod, "chat", None)
        self.sharing = PrefixSharing(
            MemoryPrefixFeed(hub), PrefixSeal(secret), self.indexes, clock, SystemIds()
        )

    def matched(self, prompt: Prompt = PROMPT) -> dict[str, int]:
        return self.indexes.signals("chat", "llama", prompt).matched

    def send(self, pod: str, prompt: Prompt = PROMPT) -> None:
        self.indexes.sent(pod, self.indexes.signals("chat", "llama", prompt))

    def metrics(self) -> dict[tuple[str, tuple[str, ...]], object]:
        values = list(self.sharing.values())
        assert {value.name for value in values} <= set(METRICS)
        return {
            (value.name.removeprefix("gir_picker_prefix_"), value.labels): value.value for value in values
        }


@asynccontextmanager
async def running(*replicas: Replica) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as scope:
        tasks = [
            scope.create_task(work)
            for replica in replicas
            for work in (replica.indexes.run(), replica.sharing.send(), replica.sharing.receive())
        ]
        yield
        for task in tasks:
            task.cancel()


def hub(history: int = 100) -> MemoryPrefixHub:
    return MemoryPrefixHub(SystemClock(), history)


async def test_what_one_picker_sent_the_others_know() -> None:
    shared = hub()
    first, second = Replica(shared), Replica(shared)
    async with running(first, second):
        first.send("a")
        await eventually(lambda: second.matched() == {"a": 10})
        assert first.matched() == {"a": 10}
        await eventually(lambda: first.sharing.connected and second.sharing.connected)
    assert second.metrics()["feed_connected", ()] == 1
    # What came from the feed is not announced again.
    assert shared.count == 1


async def test_a_picker_that_starts_later_begins_with_what_is_known() -> None:
    shared = hub()
    first, late = Replica(shared), Replica(shared)
    async with running(first):
        first.send("a")
        await eventually(lambda: shared.history)
    async with running(late):
        await eventually(lambda: late.matched() == {"a": 10})


async def test_with_the_feed_away_each_picker_goes_on_alone_and_says_so() -> None:
    shared = hub()
    shared.up = False
    first, second = Replica(shared), Replica(shared)
    async with running(first, second):
        first.send("a")
        await eventually(lambda: first.matched() == {"a": 10})
        await eventually(lambda: not first.sharing.connected)
        assert first.metrics()["feed_connected", ()] == 0
        assert second.matched() == {}
        second.send("b")
        shared.up = True
        # What was sent meanwhile is made up for, and no new request is needed for that.
        await eventually(lambda: first.matched() == second.matched() == {"a": 10, "b": 10})
        await eventually(lambda: first.sharing.connected and second.sharing.connected)
        assert first.metrics()["dropped_total", ("announce",)] == 0


async def test_a_picker_with_another_secret_is_not_believed() -> None:
    shared = hub()
    first, stranger = Replica(shared), Replica(shared, b"t" * 32)
    async with running(first, stranger):
        stranger.send("a")
        await eventually(lambda: first.sharing.unreadable)
        assert first.matched() == {}


async def test_what_waits_for_the_feed_is_bounded_and_goes_out_in_batches() -> None:
    shared = hub()
    first = Replica(shared)
    for number in range(WAITING_BLOCKS // 1000 + 5):
        first.sharing.announce("a", range(number * 1000, number * 1000 + 1000))
    assert first.sharing.dropped == 5
    async with running(first):
        await eventually(lambda: shared.history)
    seal = PrefixSeal(SECRET)
    sizes = [sum(len(told.blocks) for told in seal.open(batch).placements) for _, batch in shared.history]
    assert max(sizes) <= BATCH_BLOCKS
    assert sum(sizes) == WAITING_BLOCKS // 1000 * 1000


async def test_placements_on_pods_that_a_picker_does_not_know_are_left_out() -> None:
    shared = hub()
    first, second = Replica(shared), Replica(shared)
    first.indexes.observe("new", "chat", None)
    async with running(first, second):
        first.send("new")
        first.send("a", Prompt(b"y" * 4 * 640))
        await eventually(lambda: second.matched(Prompt(b"y" * 4 * 640)))
        assert second.indexes.approximate.blocks_of("new") == 0
