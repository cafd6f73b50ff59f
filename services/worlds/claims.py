"""The claims of the tour: evidence in, verdict with its figures out.

Pure functions over what clients saw (`Sample`), what routers dispatched (`Dispatch`) and what routers
believed (`Sighting`), all on one monotonic clock. Each claim can fail, also for lack of evidence: a
story in which nothing happened proves nothing. How evidence is gathered is `tour_evidence`'s.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from services.core.fleet import HealthState
from services.core.units import Instant, in_ms, ms, seconds
from services.worlds.load import Sample

Figure = int | float | str | list[float]

REQUESTS_MIN: Final = 50
"""Fewer requests than this in a phase and the phase shows nothing."""
CAUGHT_MIN: Final = 3
"""Requests without a first byte that the death must have caught at the dead region."""
DETECTION_LIMIT: Final = seconds(3)
CATCH_UP_LIMIT: Final = seconds(15)
BUS_SETTLE: Final = ms(500)
"""A report that was on its way when the bus was cut may still arrive."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim: whether it held, the figures it was judged by, and why not in one sentence."""

    name: str
    held: bool
    figures: Mapping[str, Figure]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One attempt that a router sent to a cluster. `number` counts from 1; `ended_at` None: never ended."""

    router: str
    cluster: str
    model: str
    request_id: str
    stream: bool
    number: int
    redispatch: bool
    sent_at: Instant
    ended_at: Instant | None
    first_byte_at: Instant | None


@dataclass(frozen=True, slots=True)
class Sighting:
    """From `at` on, `router` held `cluster` to be in `state` and had last heard of it at `heard_at`."""

    at: Instant
    router: str
    cluster: str
    state: HealthState
    heard_at: Instant


@dataclass(frozen=True, slots=True)
class Death:
    """A region's death: the evil hour, when all of it was dead, and until when it stayed so."""

    clusters: frozenset[str]
    killed_at: Instant
    dead_at: Instant
    until: Instant


@dataclass(frozen=True, slots=True)
class Outage:
    """Bus and stores away, and back. `watched` are the (router, cluster) pairs that were trusted before.

    `caught_up_at`: when each of them had been heard again, None: not in time.
    """

    cut_at: Instant
    restored_at: Instant
    caught_up_at: Instant | None
    watched: frozenset[tuple[str, str]]


def steady(samples: Sequence[Sample], clusters: Collection[str], start: Instant, end: Instant) -> Claim:
    """Claim: of what was sent and ended between `start` and `end` all was answered, and every cluster took part."""
    asked = [s for s in samples if start <= s.sent_at and s.ended_at is not None and s.ended_at < end]
    failed = [sample for sample in asked if sample.failed]
    idle = sorted(set(clusters) - {sample.cluster for sample in asked})
    waits = sorted(
        in_ms(s.first_byte_at - s.sent_at) for s in asked if s.shape.stream and s.first_byte_at is not None
    )
    figures: dict[str, Figure] = {
        "requests": len(asked),
        "failed": len(failed),
        "streams": sum(sample.shape.stream for sample in asked),
        "doors": len({sample.door for sample in asked}),
        "clusters_serving": len(clusters) - len(idle),
        "stream_first_byte_ms_p50": _quantile(waits, 0.50),
        "stream_first_byte_ms_p95": _quantile(waits, 0.95),
    }
    return verdict(
        "steady",
        figures,
        (not failed, f"{len(failed)} requests failed: {_faults(failed)}"),
        (len(asked) >= REQUESTS_MIN, f"only {len(asked)} requests were sent"),
        (not idle, f"no request was served by {', '.join(idle)}"),
    )


def region_death_no_error(
    samples: Sequence[Sample], dispatches: Sequence[Dispatch], survivors: Collection[str], death: Death
) -> Claim:
    """Claim: no request that entered by a surviving door without a first byte yet fails when a region dies.

    Streams that the dead region had begun to answer are counted apart: nobody can take their bytes back.
    """
    touched = [s for s in samples if s.door in survivors and _touches(s, death.killed_at, death.until)]
    broken = [s for s in touched if _was_streaming_from(s, death)]
    errors = [s for s in touched if s.failed and not _was_streaming_from(s, death)]
    caught = {
        d.request_id: d
        for d in dispatches
        if d.router in survivors and d.cluster in death.clusters and _caught(d, death)
    }
    recovered = [
        in_ms(s.first_byte_at - death.killed_at)
        for s in touched
        if s.request_id in caught and s.first_byte_at is not None
    ]
    later = [d for d in dispatches if d.router in survivors and death.killed_at <= d.sent_at < death.until]
    figures: dict[str, Figure] = {
        "requests": len(touched),
        "errors": len(errors),
        "caught_without_first_byte": len(caught),
        "caught_streams": sum(dispatch.stream for dispatch in caught.values()),
        "retried": sum(d.number > 1 and not d.redispatch for d in later),
        "redispatched": sum(d.redispatch for d in later),
        "recovered_within_ms": round(max(recovered, default=0.0), 1),
        "streams_broken_after_first_byte": len(broken),
        "body_bytes_max": max((s.body_bytes for s in touched), default=0),
    }
    return verdict(
        "region_death_no_error",
        figures,
        (not errors, f"{len(errors)} requests failed: {_faults(errors)}"),
        (len(touched) >= REQUESTS_MIN, f"only {len(touched)} requests were sent"),
        (len(caught) >= CAUGHT_MIN, f"the death caught only {len(caught)} requests without a first byte"),
    )


def last_request_within_3s(
    dispatches: Sequence[Dispatch],
    sightings: Sequence[Sighting],
    last_report_at: Mapping[str, Instant],
    survivors: Collection[str],
    death: Death,
) -> Claim:
    """Claim: no request is sent to a dead cluster later than 3 s after its last report was sent."""
    problems = [
        (cluster in last_report_at, f"{cluster} never sent a report") for cluster in sorted(death.clusters)
    ]
    delays: list[float] = []
    arrivals: list[float] = []
    for cluster, reported_at in last_report_at.items():
        sent = [
            d.sent_at
            for d in dispatches
            if d.router in survivors and d.cluster == cluster and d.sent_at < death.until
        ]
        before = sum(reported_at - DETECTION_LIMIT <= at <= death.killed_at for at in sent)
        problems.append((before > 0, f"{cluster} was sent nothing shortly before it died"))
        delays.append(in_ms(max(sent, default=reported_at) - reported_at))
        heard = [s.heard_at for s in sightings if s.cluster == cluster and s.router in survivors]
        heard = [at for at in heard if at < death.until]
        arrivals.append(in_ms(max(sent, default=reported_at) - max(heard, default=reported_at)))
    worst = max(delays, default=math.inf)
    figures: dict[str, Figure] = {
        "last_request_after_last_report_ms": round(worst, 1),
        "last_request_after_last_arrival_ms": round(max(arrivals, default=math.inf), 1),
        "limit_ms": in_ms(DETECTION_LIMIT),
        "clusters": len(death.clusters),
        "requests_sent_after_death": sum(
            d.router in survivors and d.cluster in death.clusters and death.dead_at < d.sent_at < death.until
            for d in dispatches
        ),
    }
    late = (worst <= in_ms(DETECTION_LIMIT), f"a request was sent {worst:.0f} ms after the last report")
    return verdict("last_request_within_3s", figures, late, *problems)


def bus_outage_unnoticed(
    samples: Sequence[Sample], sightings: Sequence[Sighting], outage: Outage, clusters: Collection[str]
) -> Claim:
    """Claim: without bus and store nobody's request fails, and the view catches up when they are back."""
    cut_at, restored_at, caught_up_at = outage.cut_at, outage.restored_at, outage.caught_up_at
    end = caught_up_at if caught_up_at is not None else Instant(restored_at + CATCH_UP_LIMIT)
    touched = [s for s in samples if _touches(s, cut_at, end)]
    failed = [s for s in touched if s.failed]
    leaked = [s for s in sightings if cut_at + BUS_SETTLE < s.heard_at < restored_at]
    during = [s for s in sightings if cut_at <= s.at < end and (s.router, s.cluster) in outage.watched]
    stale = {(s.router, s.cluster) for s in during if s.state is HealthState.STALE}
    lost = {(s.router, s.cluster) for s in during if s.state is HealthState.UNHEALTHY}
    missed = outage.watched - stale
    unwatched = sorted(set(clusters) - {cluster for _, cluster in outage.watched})
    catch_up_ms = math.inf if caught_up_at is None else in_ms(caught_up_at - restored_at)
    figures: dict[str, Figure] = {
        "requests": len(touched),
        "failed": len(failed),
        "outage_ms": round(in_ms(restored_at - cut_at), 1),
        "reports_that_arrived": len(leaked),
        "views_watched": len(outage.watched),
        "views_cut_off": len(stale),
        "clusters_lost": len(lost),
        "catch_up_ms": round(catch_up_ms, 1) if caught_up_at is not None else "never",
    }
    return verdict(
        "bus_outage_unnoticed",
        figures,
        (not failed, f"{len(failed)} requests failed: {_faults(failed)}"),
        (len(touched) >= REQUESTS_MIN, f"only {len(touched)} requests were sent"),
        (not leaked, f"{len(leaked)} reports arrived although the bus was cut"),
        (not missed, f"{len(missed)} views never missed a report"),
        (not unwatched, f"no router trusted {', '.join(unwatched)} before the outage"),
        (not lost, f"{len(lost)} views lost a living cluster"),
        (catch_up_ms <= in_ms(CATCH_UP_LIMIT), "the view did not catch up"),
    )


# --- Parts of judgements ------------------------------------------------------------------------------


def _touches(sample: Sample, start: Instant, end: Instant) -> bool:
    return sample.sent_at < end and (sample.ended_at is None or sample.ended_at >= start)


def _was_streaming_from(sample: Sample, death: Death) -> bool:
    return (
        sample.broken_after_first_byte
        and sample.cluster in death.clusters
        and sample.first_byte_at is not None
        and sample.first_byte_at <= death.dead_at
    )


def _caught(dispatch: Dispatch, death: Death) -> bool:
    """Whether the attempt was under way at the hour of death and had not brought a first byte."""
    if not dispatch.sent_at < death.killed_at <= (dispatch.ended_at or death.killed_at):
        return False
    return dispatch.first_byte_at is None or dispatch.first_byte_at > death.killed_at


def _faults(samples: Sequence[Sample]) -> str:
    counts = Counter(f"{sample.fault} at {sample.door}" for sample in samples)
    return ", ".join(f"{count} x {fault}" for fault, count in counts.most_common(3))


def _quantile(ordered: Sequence[float], share: float) -> float:
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1) if ordered else -1.0


def verdict(name: str, figures: Mapping[str, Figure], *checks: tuple[bool, str]) -> Claim:
    """Return the claim: held when every check did, else with the reasons of those that did not."""
    broken = [why for held, why in checks if not held]
    return Claim(name, not broken, figures, "; ".join(broken))
