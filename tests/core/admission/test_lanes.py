"""Rows: a band's bounds, the order of lanes, who is ahead of a newcomer."""

from services.core.admission.drain_rate import DrainRate, Promises
from services.core.admission.fairness import FairQueue
from services.core.admission.lanes import BandRow, Lane, PoolRow, Usage
from services.core.admission.settings import BandSettings, Fairness, Ordering
from services.core.admission.usage_limits import Rung
from services.core.units import seconds
from tests.core.admission.shapes import START, at, queued, ticket


def lane(priority: int) -> Lane:
    band = BandRow(BandSettings(2, 100), seconds(60), Rung(priority, 0, 1, 0, 0))
    return Lane(band, FairQueue(Fairness.MAX_MIN, Ordering.FCFS), DrainRate(START), Promises(START), START)


def test_usage_counts_requests_and_bytes() -> None:
    usage, one, other = Usage(), ticket(size=10), ticket(size=5)
    usage.add(one)
    usage.add(other)
    usage.take(one)
    assert (usage.requests, usage.size_bytes) == (1, 5)


def test_a_band_is_full_by_number_or_by_bytes() -> None:
    band = lane(0).band
    assert not band.full(ticket(size=100))
    assert band.full(ticket(size=101))
    band.usage.add(ticket())
    band.usage.add(ticket())
    assert band.full(ticket())


def test_lanes_stand_from_the_highest_priority_down() -> None:
    pool = PoolRow()
    for priority in (0, 10, -10):
        pool.insert(priority, lane(priority))
    pool.lanes[0].queue.push(queued(1))
    pool.lanes[-10].queue.push(queued(2, priority=-10))
    pool.lanes[10].rate.add(START)
    pool.lanes[0].rate.add(START)
    assert [priority for priority, _ in pool.order] == [10, 0, -10]
    assert [pool.waits_at_or_above(priority) for priority in (11, 1, 0, -10)] == [0, 0, 1, 2]
    assert pool.per_second(at(1)) == 2.0
    pool.remove(10)
    assert [priority for priority, _ in pool.order] == [0, -10]
    assert 10 not in pool.lanes
