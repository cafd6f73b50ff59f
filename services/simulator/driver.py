"""Drives an engine in real time and hands each event to whoever waits for it.

Holds one timer, set for the engine's next deadline; the model itself keeps exact times, so a late wake-up
delays tokens but never changes the load. A plain timer callback rather than a task: a pod wakes at every
step it streams, and a demo runs fifteen pods on two cores.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from services.adapters.ports import Clock
from services.core.units import NS_PER_MS, Instant
from services.simulator.engine import Engine, Slowdown
from services.simulator.events import EngineRequest, Finished, FirstToken, KvChange, TokensProduced

TIMER_TICK_NS = NS_PER_MS
"""uvloop's timers count whole milliseconds; a shorter delay would spin until the deadline has passed."""


class SequenceListener(Protocol):
    """Receives the events of the sequences it submitted; `index` is the one it gave with each."""

    def first_token(self, index: int, event: FirstToken) -> None:
        """The first token of sequence `index` exists."""

    def token(self, index: int) -> None:
        """One more token of a streamed sequence exists."""

    def finished(self, index: int, event: Finished) -> None:
        """The sequence is over."""

    def flush(self) -> None:
        """Everything that happened up to now has been told."""


KvSink = Callable[[list[KvChange]], None]


class EngineDriver:
    """One engine on one event loop. `wake_interval_ms` is the least time between two wake-ups.

    What happens to the blocks of an engine with a journal goes to `kv_sink`, batch by batch.
    """

    def __init__(
        self, engine: Engine, clock: Clock, wake_interval_ms: int, kv_sink: KvSink | None = None
    ) -> None:
        self.engine = engine
        self._kv_sink = kv_sink
        self._clock = clock
        self._wake_interval_ns = wake_interval_ms * NS_PER_MS
        self._listeners: dict[str, tuple[SequenceListener, int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = Instant(0)
        self._woke_at = clock.now()
        self._telling = False
        self._closed = False

    def submit(self, request: EngineRequest, listener: SequenceListener, index: int) -> None:
        """Start a sequence; its events go to `listener` under `index`. Raises ValueError as the engine does."""
        self.engine.submit(request, self._clock.now())
        self._listeners[request.request_id] = (listener, index)
        self._arm()

    def abort(self, request_id: str) -> None:
        """Give up a sequence; one that is over already is ignored."""
        self.engine.abort(request_id, self._clock.now())
        self._arm()

    def slow_down(self, slowdown: Slowdown) -> None:
        """Change how slow the engine is from now on."""
        self.engine.slow_down(slowdown, self._clock.now())
        self._arm()

    def reset_prefix_cache(self) -> bool:
        """Forget cached blocks, as the engine does."""
        done = self.engine.reset_prefix_cache(self._clock.now())
        self.settle()
        return done

    def sleep(self) -> None:
        """Stop computing at the end of the step in progress."""
        self.engine.sleep(self._clock.now())
        self.settle()

    def wake(self) -> None:
        """Go on computing."""
        self.engine.wake(self._clock.now())
        self._arm()

    def settle(self) -> None:
        """Bring the engine up to now, so that its load can be read, and tell what happened.

        Does nothing when called by a listener being told: events must reach each in their order.
        """
        if self._telling:
            return
        self._telling = True
        now = self._clock.now()
        self._woke_at = now
        touched: dict[int, SequenceListener] = {}
        try:
            for event in self.engine.advance(now):
                if isinstance(event, TokensProduced):
                    for request_id in event.request_ids:
                        listener, index = self._listeners[request_id]
                        listener.token(index)
                        touched[id(listener)] = listener
                elif isinstance(event, FirstToken):
                    listener, index = self._listeners[event.request_id]
                    listener.first_token(index, event)
                    touched[id(listener)] = listener
                elif isinstance(event, Finished):
                    listener, index = self._listeners.pop(event.request_id)
                    listener.finished(index, event)
                    touched[id(listener)] = listener
            for listener in touched.values():
                listener.flush()
            if self._kv_sink is not None and (changes := self.engine.kv_changes()):
                self._kv_sink(changes)
        finally:
            self._telling = False
            self._arm()

    def close(self) -> None:
        """Stop for good; sequences in flight stay where they are."""
        self._closed = True
        self._disarm()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        deadline = None if self._closed else self.engine.next_deadline()
        if deadline is None:
            self._disarm()
            return
        wake_at = max(deadline, Instant(self._woke_at + self._wake_interval_ns))
        if self._timer is not None:
            if self._timer_at == wake_at:
                return
            self._timer.cancel()
        delay_ns = max(wake_at - self._clock.now(), TIMER_TICK_NS)
        self._timer_at = wake_at
        self._timer = asyncio.get_running_loop().call_later(delay_ns / 1e9, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.settle()
