"""Which publisher speaks for a cluster when two believe they do.

The higher epoch speaks. A publisher that sees a higher epoch under its own cluster's key is fenced and
stops; when that epoch then stays silent for 1 s, it takes over with epoch + 1. Epochs come from wall time
only to be larger than a forgotten past; a clock set back is overruled by the last epoch on the bus. Leases,
the bus and clocks are the shell's.
"""

from dataclasses import dataclass, replace

from services.core.fleet import ReportId
from services.core.units import Duration, Instant, WallMs, seconds

RIVAL_SILENCE = seconds(1)
"""Two missed reports: a living rival is never taken over, and a dead one costs less than the 1.25 s after
which routers call the cluster silent."""
_NEVER = Instant(0)


@dataclass(frozen=True, slots=True)
class Standing:
    """This publisher's place: its epoch, the last sequence it used, and the rival that fences it, if any."""

    epoch: int
    sequence: int = 0
    rival: int | None = None
    rival_seen_at: Instant = _NEVER

    @property
    def may_publish(self) -> bool:
        """Whether this publisher speaks for the cluster."""
        return self.rival is None


def take_over(wall_ms: WallMs, last_epoch: int | None) -> Standing:
    """Return the standing of a publisher that won the election; `last_epoch` is the newest on the bus."""
    return Standing(epoch=wall_ms if last_epoch is None else max(wall_ms, last_epoch + 1))


def seen(standing: Standing, report: ReportId, now: Instant) -> Standing:
    """Take in a report of the own cluster read from the bus, one's own included.

    The same epoch with a sequence never used here is a rival that chose the same millisecond.
    """
    foreign = report.epoch > standing.epoch or (
        report.epoch == standing.epoch and report.sequence > standing.sequence
    )
    if not foreign:
        return standing
    rival = report.epoch if standing.rival is None else max(standing.rival, report.epoch)
    return replace(standing, rival=rival, rival_seen_at=now)


def tick(standing: Standing, now: Instant, silence: Duration = RIVAL_SILENCE) -> Standing:
    """Let time act: a rival that fell silent is succeeded."""
    if standing.rival is None or now - standing.rival_seen_at < silence:
        return standing
    return Standing(epoch=standing.rival + 1)


def next_id(standing: Standing) -> tuple[Standing, ReportId]:
    """Return the standing after, and the id of, the next report."""
    sequence = standing.sequence + 1
    return replace(standing, sequence=sequence), ReportId(standing.epoch, sequence)
