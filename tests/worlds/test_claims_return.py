"""The ramp's claim: held by traffic that follows the ramp, broken by each way of not following it."""

from collections.abc import Iterator, Sequence

from services.core.fleet import HealthState
from services.core.policy import HealthPolicy
from services.core.units import seconds
from services.worlds.claims import Claim, Dispatch, Sighting
from services.worlds.claims_return import Return, ramped_return
from tests.worlds.evidence import DEAD, at, dispatch, sighting

POLICY = HealthPolicy(ramp_window=seconds(20))
BACK = Return(DEAD, "eu", "large", {"us-1": 1.0, "us-2": 1.0, "ap-1": 2.0}, at(20), at(50), POLICY)
HEALTHY_AT = 25.0


def path(*states: tuple[float, HealthState], cluster: str) -> list[Sighting]:
    return [sighting(when, state, cluster) for when, state in states]


def good_path(cluster: str) -> list[Sighting]:
    return path(
        (20.1, HealthState.UNHEALTHY),
        (21, HealthState.PROBATION),
        (HEALTHY_AT, HealthState.HEALTHY),
        cluster=cluster,
    )


def sightings() -> list[Sighting]:
    return [each for cluster in sorted(DEAD) for each in good_path(cluster)]


def trials(at_once: int) -> list[Dispatch]:
    return [dispatch(22, 22.5, "us-1") for _ in range(at_once)]


def traffic(share: float | None = None, per_second: int = 20) -> Iterator[Dispatch]:
    """Requests of 25 s; a share of them (None: what the ramp allows) goes to the returned region."""
    owed = 0.0
    for n in range(25 * per_second):
        second = HEALTHY_AT + n / per_second
        ramp = min(1.0, max(0.1, (second - HEALTHY_AT) / 20))
        owed += 2 * ramp / (2 * ramp + 2) if share is None else share
        taken = owed >= 1
        owed -= taken
        yield dispatch(second, second + 0.05, "us-1" if taken else "ap-1")


def judged(
    dispatches: Sequence[Dispatch], seen: Sequence[Sighting] | None = None, back: Return = BACK
) -> Claim:
    return ramped_return(dispatches, sightings() if seen is None else seen, back)


def test_return_holds_on_the_ramp() -> None:
    claim = judged([*trials(3), *traffic()])
    assert claim.held, claim.why
    assert claim.figures["probation_after_ms"] == 1000
    assert claim.figures["healthy_after_ms"] == 5000
    assert claim.figures["trials_at_once_max"] == 3
    shares = claim.figures["share_percent"]
    assert isinstance(shares, list)
    assert shares == sorted(shares)


def test_return_breaks_when_all_traffic_comes_back_at_once() -> None:
    claim = judged([*trials(1), *traffic(share=0.5)])
    assert not claim.held
    assert "fit the ramp" in claim.why


def test_return_breaks_without_probation() -> None:
    trusted = [
        each
        for cluster in sorted(DEAD)
        for each in path((20.1, HealthState.UNHEALTHY), (HEALTHY_AT, HealthState.HEALTHY), cluster=cluster)
    ]
    claim = judged(list(traffic()), trusted)
    assert not claim.held
    assert "unhealthy -> healthy" in claim.why


def test_return_breaks_when_trust_came_before_probation() -> None:
    early = path((20.5, HealthState.STALE), cluster="us-1")
    claim = judged(list(traffic()), [*early, *sightings()])
    assert not claim.held
    assert "trusted before its probation" in claim.why


def test_return_breaks_on_one_trial_too_many_at_once() -> None:
    claim = judged([*trials(4), *traffic()])
    assert not claim.held
    assert "4 trials ran at once" in claim.why


def test_return_breaks_when_one_cluster_stays_away() -> None:
    claim = judged(list(traffic()), good_path("us-1"))
    assert not claim.held
    assert "us-2 did not return: it went nowhere" in claim.why


def test_return_breaks_when_it_is_sent_nothing_in_the_end() -> None:
    claim = judged([*trials(1), *traffic(share=0.0)])
    assert not claim.held
    assert "sent nothing" in claim.why


def test_return_breaks_when_the_ramp_was_not_watched_to_its_end() -> None:
    short = Return(DEAD, "eu", "large", BACK.capacities, at(20), at(40), POLICY)
    claim = judged([*trials(1), *traffic()], back=short)
    assert not claim.held
    assert "not watched to its end" in claim.why


def test_return_breaks_without_traffic() -> None:
    assert not judged([]).held


def test_return_is_judged_by_one_router_and_its_first_attempts() -> None:
    others = [dispatch(26, 27, "us-1", router="ap") for _ in range(500)]
    seconds_ones = [dispatch(26, 27, "us-1", number=2) for _ in range(500)]
    assert judged([*trials(1), *traffic(), *others, *seconds_ones]).held
