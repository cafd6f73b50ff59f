"""The feed in one process: supervisor and workers share memory, so an event is a call.

Nothing here judges events. Apart from the bus because it has one publisher, no history
and no keys.
"""

from collections.abc import Callable

from services.adapters.ports import FeedEvent


class MemoryFeed:
    """Calls every subscriber, in the order they came, for each event, in order."""

    def __init__(self) -> None:
        self._subscribers: dict[int, Callable[[FeedEvent], None]] = {}
        self._next_id = 0

    def publish(self, event: FeedEvent) -> None:
        """Hand `event` to all who are subscribed now."""
        for on_event in tuple(self._subscribers.values()):
            on_event(event)

    def subscribe(self, on_event: Callable[[FeedEvent], None]) -> Callable[[], None]:
        """Call `on_event` from the next event on; the returned function ends it and may be called twice."""
        subscription = self._next_id
        self._next_id += 1
        self._subscribers[subscription] = on_event

        def unsubscribe() -> None:
            self._subscribers.pop(subscription, None)

        return unsubscribe
