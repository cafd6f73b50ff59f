"""Ports of what feeds the prefix indexes: KV events, other pickers, a server's tokenizer. Part of the lobby.

Protocols only, each with one contract suite in `tests/contracts`. Apart from `ports` because only an endpoint
picker asks for these; failures are that module's.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from services.core.units import Duration
from services.wire.kv_events import KvMessage


class KvEventSource(Protocol):
    """KV events of one publisher: a data-parallel rank of one model server.

    `messages()` yields what is published from now on, in order and several at once, for ever; connection loss is
    mended inside and what was published meanwhile is missing. It has one caller. `replay` yields number and
    payload of the publisher's kept batches from `start` on and ends with the last; it raises
    `UnreachableError` when there is no replay, or an answer takes longer than 2 s, or all of it longer than
    2 minutes. `malformed` counts messages that are none of an engine's.
    """

    @property
    def malformed(self) -> int: ...

    def messages(self) -> AsyncGenerator[Sequence[KvMessage], None]: ...

    def replay(self, start: int) -> AsyncGenerator[tuple[int, bytes], None]: ...

    async def close(self) -> None: ...


class PrefixFeed(Protocol):
    """What the pickers of one cluster tell each other: batches of bytes in a bounded history.

    `announce` appends; `tail` returns batches after a position (empty: from the oldest kept) in order and
    the position to go on from, waiting up to `wait` when there are none; both raise `UnreachableError`. What
    the history no longer holds is passed over. A picker's own batches come back to it too.
    """

    async def announce(self, batches: Sequence[bytes]) -> None: ...

    async def tail(self, after: str, wait: Duration) -> tuple[str, Sequence[bytes]]: ...

    async def close(self) -> None: ...


class Tokenizer(Protocol):
    """Turns a request body into the token ids that the model server at `address` would read it as."""

    async def tokenize(self, address: str, body: bytes, timeout: Duration) -> bytes | None:
        """Return the ids, 4 bytes each, little-endian; None when the server has no answer in time."""

    async def close(self) -> None: ...
