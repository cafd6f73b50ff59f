"""Decision records kept by a worker: a ring in memory and, if asked for, JSON lines in a file.

Appending is a deque append; the file is written in batches by whoever calls
`flush`, never on the request path. Losing records is counted, never waited for.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, Protocol, TypeVar

RING_MAX_RECORDS = 10_000
"""About 10 MB and, at 1,000 requests/s, the last ten seconds; the file is for longer memories."""
UNWRITTEN_MAX_RECORDS = 100_000
"""A disk that hangs costs at most this many records of memory; further ones are dropped and counted."""


class Identified(Protocol):
    """Anything with a router-minted request id."""

    @property
    def request_id(self) -> str: ...  # noqa: D102 -- the class docstring says it


R = TypeVar("R", bound=Identified)


class RingDecisionLog(Generic[R]):
    """`render` turns a record into one JSON line; it is called at flush, when the request ended.

    `dropped` counts records that no longer fitted the write queue or could not be written.
    """

    def __init__(self, render: Callable[[R], bytes], file: Path | None = None) -> None:
        self.dropped = 0
        self._render = render
        self._file = file
        self._ring: deque[R] = deque(maxlen=RING_MAX_RECORDS)
        self._unwritten: deque[R] = deque()

    def append(self, record: R) -> None:
        """Keep a finished record; the oldest falls out of the ring."""
        self._ring.append(record)
        if self._file is not None:
            if len(self._unwritten) >= UNWRITTEN_MAX_RECORDS:
                self.dropped += 1
            else:
                self._unwritten.append(record)

    def find(self, request_id: str) -> R | None:
        """Return the record of a request while it is in the ring.

        A search of half a millisecond: somebody asks now and then, and an index is paid by every request.
        """
        return next((record for record in reversed(self._ring) if record.request_id == request_id), None)

    def recent(self) -> list[R]:
        """Return the records of the ring, oldest first."""
        return list(self._ring)

    def flush(self) -> None:
        """Write what is unwritten; a failing disk loses and counts this batch, and nothing else."""
        if self._file is None or not self._unwritten:
            return
        batch, self._unwritten = self._unwritten, deque()
        lines = b"".join(self._lines(batch))
        try:
            with self._file.open("ab") as stream:
                stream.write(lines)
        except OSError:
            self.dropped += len(batch)

    def _lines(self, batch: Iterable[R]) -> Iterator[bytes]:
        """Render a batch; a record that cannot be rendered costs itself only and is counted."""
        for record in batch:
            try:
                line = self._render(record)
            except (ValueError, TypeError):
                self.dropped += 1
            else:
                yield line + b"\n"
