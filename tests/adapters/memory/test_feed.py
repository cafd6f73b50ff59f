from services.adapters.memory.feed import MemoryFeed
from services.adapters.ports import FeedEvent, ProbeResult
from services.core.locality import ClusterId
from services.core.units import Instant, ms


def probe(at: int) -> ProbeResult:
    return ProbeResult(ClusterId("eu-1"), ok=True, finished_at=Instant(at), rtt=ms(1))


def test_every_subscriber_gets_every_event_in_order_from_its_subscription_on() -> None:
    feed = MemoryFeed()
    early: list[FeedEvent] = []
    late: list[FeedEvent] = []
    feed.subscribe(early.append)
    feed.publish(probe(1))
    feed.subscribe(late.append)
    feed.publish(probe(2))
    assert early == [probe(1), probe(2)]
    assert late == [probe(2)]


def test_one_subscriber_may_leave_while_an_event_is_handed_out_and_twice() -> None:
    feed = MemoryFeed()
    seen: list[FeedEvent] = []
    leave = feed.subscribe(lambda _: leave())
    feed.subscribe(seen.append)
    feed.publish(probe(1))
    leave()
    feed.publish(probe(2))
    assert seen == [probe(1), probe(2)]
