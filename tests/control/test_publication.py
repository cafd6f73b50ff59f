import pytest

from services.adapters.memory.bus import MemoryBus, MemoryBusReader
from services.adapters.ports import Topic, UnreachableError
from services.adapters.system.clock import SystemClock
from services.control.publication import Publication, PublicationRefusedError, publish_policy
from services.core.inference import ModelName
from services.core.policy import ModelPolicy, PolicySnapshot, TokenKey
from services.core.units import WallMs, ms
from services.wire.errors import OversizeError
from services.wire.policy_codec import MAX_POLICY_BYTES, SNAPSHOT_KEY, decode_published, encode_policy

CLOCK = SystemClock()
POLICY = PolicySnapshot(1, WallMs(0), token_keys=(TokenKey("k", bytes(32)),))


async def publish(
    bus: MemoryBus, policy: PolicySnapshot = POLICY, revision: int | None = None
) -> Publication:
    return await publish_policy(
        policy,
        bus.reader([Topic.POLICY]),
        bus.publisher(),
        CLOCK,
        ms(50),
        author="ops",
        reason="test",
        revision=revision,
    )


async def retained(bus: MemoryBus) -> bytes:
    value = await bus.reader([Topic.POLICY]).last_value(Topic.POLICY, SNAPSHOT_KEY)
    assert value is not None
    return value


async def test_the_first_revision_is_one_and_each_apply_counts_on() -> None:
    bus = MemoryBus(CLOCK)
    first = await publish(bus)
    assert (first.policy.revision, first.previous) == (1, None)
    second = await publish(bus)
    assert (second.policy.revision, second.previous) == (2, 1)
    stored = decode_published(await retained(bus))
    assert stored.policy == second.policy
    assert (stored.author, stored.reason) == ("ops", "test")
    assert stored.policy.token_keys == POLICY.token_keys
    assert stored.policy.published_at_ms > 0


async def test_a_named_revision_must_lie_above_the_newest() -> None:
    bus = MemoryBus(CLOCK)
    assert (await publish(bus, revision=7)).policy.revision == 7
    with pytest.raises(PublicationRefusedError, match="revision 7 is not above 7, the newest"):
        await publish(bus, revision=7)
    assert (await publish(bus)).policy.revision == 8


async def test_an_unreadable_snapshot_is_replaced_only_by_a_named_revision() -> None:
    bus = MemoryBus(CLOCK)
    bus.append(Topic.POLICY, SNAPSHOT_KEY, b"\xff")
    with pytest.raises(PublicationRefusedError, match="cannot be read"):
        await publish(bus)
    assert await retained(bus) == b"\xff"
    replaced = await publish(bus, revision=5)
    assert (replaced.policy.revision, replaced.previous) == (5, None)


class _RivalReader(MemoryBusReader):
    """A reader in whose bus another apply lands between ours and the look at the result."""

    def __init__(self, bus: MemoryBus) -> None:
        super().__init__(bus, [Topic.POLICY])
        self._calls = 0

    async def last_value(self, topic: Topic, key: str) -> bytes | None:
        self._calls += 1
        if self._calls == 2:
            self._bus.append(topic, key, encode_policy(POLICY, "rival"))
        return await super().last_value(topic, key)


async def test_an_apply_that_was_overtaken_says_so() -> None:
    bus = MemoryBus(CLOCK)
    with pytest.raises(PublicationRefusedError, match="revision 1 was overtaken by another apply"):
        await publish_policy(POLICY, _RivalReader(bus), bus.publisher(), CLOCK, ms(50))


async def test_a_bus_that_is_away_is_unreachable() -> None:
    bus = MemoryBus(CLOCK)
    bus.stop()
    with pytest.raises(UnreachableError):
        await publish(bus)


async def test_a_policy_beyond_its_bound_is_not_sent() -> None:
    bus = MemoryBus(CLOCK)
    huge = PolicySnapshot(1, WallMs(0), models=(ModelPolicy(ModelName("m" * MAX_POLICY_BYTES)),))
    with pytest.raises(OversizeError):
        await publish(bus, huge)
    assert await bus.reader([Topic.POLICY]).last_value(Topic.POLICY, SNAPSHOT_KEY) is None
