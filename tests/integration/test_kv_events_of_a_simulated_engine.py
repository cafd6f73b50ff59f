"""From a simulated engine's cache over real ZeroMQ sockets to what the picker believes of the pod."""

import asyncio
import struct
from collections.abc import Sequence

import pytest

from services.adapters.system.clock import SystemClock
from services.adapters.zmq.kv_events import ZmqKvEvents
from services.core.prefix.blocks import Prompt
from services.core.prefix.events import EventSource
from services.endpoint_picker.kv_listener import KvListener
from services.endpoint_picker.prefix import PrefixIndexes
from services.simulator.events import AllBlocksCleared, BlocksRemoved, BlocksStored
from services.simulator.kv_events import KvEventLog
from services.simulator.kv_publisher import KvPublisher
from services.simulator.tokens import token_ids
from services.wire.kv_events import topic_for
from tests.support.wait import eventually

MODEL = "llama"
BLOCK = 16
CONTENT = bytes(range(256)) * 2  # 128 tokens.
NAMES = [b"%08d" % number for number in range(8)]


def stored(first: int, last: int) -> BlocksStored:
    """The blocks of CONTENT from `first` up to `last`."""
    part = CONTENT[first * BLOCK * 4 : last * BLOCK * 4]
    return BlocksStored(tuple(NAMES[first:last]), NAMES[first - 1] if first else None, first, part, "", "")


def prompt_of(content: bytes) -> tuple[Prompt, bytes]:
    ids: Sequence[int] = token_ids(content)
    return Prompt(",".join(map(str, ids)).encode(), 6, True), struct.pack(f"<{len(ids)}I", *ids)


@pytest.mark.parametrize("as_maps", [False, True])
async def test_stored_lost_removed_and_cleared_blocks_show_in_the_index(as_maps: bool) -> None:
    publisher = KvPublisher(
        KvEventLog(BLOCK, 0, as_maps=as_maps, kept=100),
        topic_for("10.0.0.1:8000", MODEL),
        "tcp://127.0.0.1:0",
        "tcp://127.0.0.1:0",
    )
    indexes = PrefixIndexes(b"s" * 32, precise=True)
    indexes.observe("a", "chat", None)
    assert indexes.precise is not None
    listener = KvListener(indexes.precise, SystemClock())
    prompt, ids = prompt_of(CONTENT)

    def share() -> float:
        found = indexes.signals("chat", MODEL, prompt, ids)
        return found.matched.get("a", 0) / found.total_blocks

    async with asyncio.TaskGroup() as scope:
        source = ZmqKvEvents(publisher.endpoint, publisher.replay_endpoint)
        task = scope.create_task(listener.listen(EventSource("a", MODEL), source))
        # Whatever is published before the subscription stands is had by replay with the first that is heard.
        publisher.publish([stored(0, 4)], 1.0)

        def half() -> bool:
            publisher.publish([], 1.0)
            return share() >= 0.4

        await eventually(half)
        publisher.losing = True
        publisher.publish([stored(4, 6)], 1.0)
        publisher.losing = False
        publisher.publish([AllBlocksCleared()], 1.0)
        await eventually(lambda: share() == 0)
        publisher.publish([stored(0, 8)], 1.0)
        await eventually(lambda: share() == 1)
        publisher.publish([BlocksRemoved(tuple(NAMES[4:]))], 1.0)
        await eventually(lambda: share() <= 0.5)
        assert share() > 0
        task.cancel()
    await publisher.close()
    assert indexes.precise.entries == 0
