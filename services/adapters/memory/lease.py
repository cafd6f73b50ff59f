"""Election of a publisher inside one process, and the static choice that needs none.

No clock and no files: a memory lease passes to the next in line when released or
revoked. Apart from the file lease, which elects between processes of one host.
"""

from services.adapters.memory.signal import Signal


class MemoryElection:
    """What the candidates of one cluster compete for."""

    def __init__(self) -> None:
        self.holder: MemoryLease | None = None
        self.freed = Signal()

    def candidate(self) -> "MemoryLease":
        """Return a new candidate's lease."""
        return MemoryLease(self)

    def revoke(self) -> None:
        """Take the lease from its holder, as an expiry would; it learns by `held`."""
        self.holder = None
        self.freed.fire()


class MemoryLease:
    """One candidate's view of a `MemoryElection`."""

    def __init__(self, election: MemoryElection) -> None:
        self._election = election

    async def acquire(self) -> None:
        """Wait until nobody else holds it."""
        while self._election.holder not in (None, self):
            await self._election.freed.wait()
        self._election.holder = self

    def held(self) -> bool:
        """Whether this candidate is the publisher."""
        return self._election.holder is self

    async def release(self) -> None:
        """Pass it on if held."""
        if self.held():
            self._election.revoke()


class StaticLease:
    """The publisher by configuration: this process and no other."""

    async def acquire(self) -> None:
        """Return at once."""

    def held(self) -> bool:
        """Return True: configuration does not expire."""
        return True

    async def release(self) -> None:
        """Nothing to pass on."""
