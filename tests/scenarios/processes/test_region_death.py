"""A whole region dies under load, once killed and once frozen, and comes back.

Judged at the door of a region that lives: by what its clients saw, by the dispatches it recorded, and by the
reports that lie on the bus.
"""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from services.core.units import Instant, after, ms, seconds
from services.worlds.load import Sample
from tests.scenarios.processes.evidence import (
    Attempt,
    Move,
    Report,
    applied_ids,
    attempts_in,
    last_sent,
    moves_in,
    reports_on,
)
from tests.scenarios.processes.fleet import ProcessFleet
from tests.scenarios.processes.plan import EU, LARGE, ROUTED, US
from tests.scenarios.processes.traffic import (
    CLOCK,
    STEADY,
    MachineStalledError,
    Traffic,
    judged,
    polled,
    settled,
    traffic,
)

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(400)]

LAST_REQUEST = seconds(3)
"""The promise: no new request reaches a dead region later than this after its last report was sent."""
STEADY_REQUESTS = 60
IN_FLIGHT = 12
"""Of the clients' two dozen, so many must be at the region that is struck."""
AFTERWARDS_REQUESTS = 60
NEVER = Instant(0)
WINDOW = seconds(4)
RAMP_LATER = seconds(10)
"""Over so long a time shares are compared."""


@dataclass
class Story:
    """What happened when, and what was seen."""

    doomed: frozenset[str]
    began_at: Instant = NEVER
    struck_at: Instant = NEVER
    revived_at: Instant = NEVER
    healthy_at: Instant = NEVER
    samples: list[Sample] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)

    def sample_of(self, attempt: Attempt) -> Sample:
        return next(sample for sample in self.samples if sample.request_id == attempt.request_id)

    def share(self, cluster: str, start: Instant) -> float:
        """A cluster's share of the first attempts for the far model in the window from `start`."""
        end = after(start, WINDOW)
        first = [a for a in self.attempts if a.number == 1 and a.model == LARGE and start <= a.sent_at < end]
        return sum(attempt.cluster == cluster for attempt in first) / len(first)

    def healthy_again(self, cluster: str) -> Instant:
        """When a cluster was let back."""
        return next(m.at for m in self.moves if m.cluster == cluster and m.before == "PROBATION")


async def tell(
    fleet: ProcessFleet, strike: Callable[[str], None], revive: Callable[[str], None], stay: bool
) -> Story:
    """Strike the second region under steady load, watch, revive it, watch on; return what was seen.

    Raises `MachineStalledError` when the machine stalled between strike and revival, or when the strike met
    no request of a kind that it should have met.
    """
    await settled(fleet)
    story = Story(fleet.plan.clusters_of(US), began_at=CLOCK.now())
    async with traffic(fleet, STEADY) as running:
        await running.answers(STEADY_REQUESTS, story.began_at)
        await running.in_flight(story.doomed, IN_FLIGHT)
        await running.watch_for_stalls()
        story.struck_at = CLOCK.now()
        await asyncio.to_thread(strike, US)
        promise_over = after(story.struck_at, seconds(4))
        await running.answers(AFTERWARDS_REQUESTS, promise_over)
        await running.check_for_stalls(EU)
        story.reports = await reports_on(fleet.kafka.bootstrap)
        story.revived_at = CLOCK.now()
        await asyncio.to_thread(revive, US)
        await polled(lambda: fleet.serving(EU), "the region to be back")
        story.healthy_at = CLOCK.now()
        if stay:
            await running.answers(1, after(story.healthy_at, RAMP_LATER + WINDOW))
        await running.finish()
        await gather(fleet, running, story)
    return story


async def gather(fleet: ProcessFleet, running: Traffic, story: Story) -> None:
    """Take the router's records and moves, once they tell of every request."""
    file = fleet.decision_file(EU)
    story.samples = running.samples
    ids = {sample.request_id.encode() for sample in story.samples if sample.request_id}
    await polled(lambda: all(request_id in file.read_bytes() for request_id in ids), "every record")
    story.attempts = attempts_in(file, story.began_at)
    story.moves = moves_in(fleet.router(EU).stderr(), story.began_at)


def check_met(story: Story) -> None:
    """Raise `MachineStalledError` unless the strike met streams and answers before and streams after their first byte."""
    met = [attempt for attempt in story.attempts if attempt.cluster in story.doomed]
    waiting = [story.sample_of(a).shape.stream for a in met if a.unanswered_at(story.struck_at)]
    started = [a for a in met if a.open_at(story.struck_at) and not a.unanswered_at(story.struck_at)]
    if not (any(waiting) and not all(waiting) and any(story.sample_of(a).shape.stream for a in started)):
        raise MachineStalledError("the strike met too little")


def judge(story: Story) -> None:
    """Claim: nobody but clients whose streams had begun noticed, and the dead got nothing after 3 s."""
    doomed, struck_at = story.doomed, story.struck_at
    caught = [a for a in story.attempts if a.cluster in doomed and a.open_at(struck_at)]
    began = {a.request_id for a in caught if not a.unanswered_at(struck_at)}
    for attempt in caught:
        sample = story.sample_of(attempt)
        if attempt.unanswered_at(struck_at):
            assert not sample.failed, ("a request without a first byte failed", attempt, sample)
        elif sample.shape.stream:
            assert sample.fault in ("", "in_band_error"), ("a begun stream ended otherwise", attempt, sample)
    unexplained = [sample for sample in story.samples if sample.failed and sample.request_id not in began]
    assert unexplained == []
    assert all(sample.broken_after_first_byte for sample in story.samples if sample.failed)

    reported = last_sent(story.reports, story.revived_at)
    for attempt in story.attempts:
        if attempt.cluster in doomed and attempt.sent_at < story.revived_at:
            assert attempt.sent_at <= after(reported[attempt.cluster], LAST_REQUEST), attempt
    for cluster in doomed:
        assert reported[cluster] <= after(struck_at, ms(100)), "the strike silenced its publisher"
        assert reported[cluster] >= after(struck_at, seconds(-2)), "the cluster reported until the strike"


def judge_return(story: Story) -> None:
    """Claim: the region is let back through PROBATION, and only after it was lost."""
    for cluster in story.doomed:
        moves = [(move.before, move.after) for move in story.moves if move.cluster == cluster]
        assert moves[-2:] == [("UNHEALTHY", "PROBATION"), ("PROBATION", "HEALTHY")], moves
        assert any(move.after == "UNHEALTHY" for move in story.moves if move.at < story.revived_at)


def judge_order(fleet: ProcessFleet) -> None:
    """Claim: no region's store ever took a report that was not newer than the last of its cluster."""
    for region in ROUTED:
        applied = applied_ids(fleet.redis.port, region)
        assert applied.keys() == {cluster.name for cluster in fleet.plan.clusters}
        for cluster, ids in applied.items():
            assert all(earlier < later for earlier, later in itertools.pairwise(ids)), cluster


async def test_a_region_killed_at_once_costs_no_request_that_was_not_yet_answered(
    fleet: ProcessFleet,
) -> None:
    """Every process of a region dies by SIGKILL; who had no first byte is served elsewhere without retrying."""

    async def run() -> None:
        story = await tell(fleet, fleet.kill_region, fleet.revive_region, stay=False)
        check_met(story)
        judge(story)
        assert any(sample.fault == "in_band_error" for sample in story.samples)
        judge_return(story)
        judge_order(fleet)

    await judged(run)


def ramp(story: Story, cluster: str) -> tuple[float, float, float]:
    """Return a cluster's shares before the strike, right after its return, and later on the ramp."""
    back = story.healthy_again(cluster)
    windows = after(story.struck_at, -WINDOW), back, after(back, RAMP_LATER)
    before, first, later = (story.share(cluster, start) for start in windows)
    return before, first, later


async def test_a_frozen_region_is_found_out_by_silence_and_returns_on_a_ramp(fleet: ProcessFleet) -> None:
    """Every process of a region stops by SIGSTOP: its sockets stay open and nothing answers."""

    async def run() -> None:
        story = await tell(fleet, fleet.pause_region, fleet.resume_region, stay=True)
        check_met(story)
        judge(story)
        judge_return(story)
        judge_order(fleet)
        before, first, later = map(sum, zip(*(ramp(story, name) for name in story.doomed), strict=True))
        assert first < 0.7 * before, "the ramp begins low"
        assert first < later, "and rises"

    await judged(run)
