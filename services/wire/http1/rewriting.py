"""An observer whose bytes are rewritten on their way to the client: the seam for what alters a body.

Framing follows in `passage`, which is told that the length changes. What is rewritten is somebody else's.
Apart from `observer` because almost every body passes as it came and pays nothing for this.
"""

from typing import Protocol

from services.wire.http1.observer import BodyObserver


class Rewriter(Protocol):
    """Alters a body chunk by chunk. `holding`: whether bytes wait for the next chunk."""

    @property
    def holding(self) -> bool:
        """Whether `feed` has kept bytes back."""

    def feed(self, chunk: bytes) -> bytes:
        """Return what may go on now."""

    def finish(self) -> bytes:
        """The body has ended; return what was kept back."""


class RewritingObserver:
    """Lets `observer` see a body as the upstream sent it, and `rewriter` alter what then goes on."""

    __slots__ = ("_observer", "_rewriter")

    def __init__(self, observer: BodyObserver, rewriter: Rewriter) -> None:
        self._observer = observer
        self._rewriter = rewriter

    @property
    def ready(self) -> bool:
        """As of the observer."""
        return self._observer.ready

    @property
    def error(self) -> bytes | None:
        """As of the observer."""
        return self._observer.error

    @property
    def done(self) -> bool:
        """As of the observer."""
        return self._observer.done

    @property
    def unfinished(self) -> bool:
        """As of the observer."""
        return self._observer.unfinished

    @property
    def holding(self) -> bool:
        """Whether either of the two has kept bytes back."""
        return self._observer.holding or self._rewriter.holding

    def feed(self, body: bytes) -> bytes:
        """Observe body bytes; return what may go on now, rewritten."""
        released = self._observer.feed(body)
        return self._rewriter.feed(released) if released else released

    def finish(self) -> bytes:
        """The body has ended; return what either of the two has kept back."""
        rest = self._observer.finish()
        return (self._rewriter.feed(rest) if rest else rest) + self._rewriter.finish()

    def usage_object(self) -> bytes | None:
        """As of the observer."""
        return self._observer.usage_object()
