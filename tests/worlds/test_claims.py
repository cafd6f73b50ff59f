"""Each claim holds on good evidence, and each planted violation breaks it: a judge that cannot say no judges nothing."""

from collections.abc import Sequence

import pytest

from services.core.fleet import HealthState
from services.core.units import Instant
from services.worlds.claims import (
    Claim,
    Dispatch,
    Outage,
    Sighting,
    bus_outage_unnoticed,
    last_request_within_3s,
    region_death_no_error,
    steady,
    verdict,
)
from services.worlds.load import Sample
from tests.worlds.evidence import DEAD, DEATH, STREAM, SURVIVORS, at, dispatch, sample, sighting

CLUSTERS = ("eu-1", "us-1", "us-2", "ap-1")


def test_a_claim_is_held_only_when_every_check_is_and_says_which_were_not() -> None:
    broken = verdict("x", {}, (True, "a"), (False, "b"), (False, "c"))
    assert (broken.held, broken.why) == (False, "b; c")
    assert verdict("x", {}, (True, "a")).held


# --- steady -------------------------------------------------------------------------------------------


def calm() -> list[Sample]:
    return [sample(n / 10, n / 10 + 0.5, cluster=CLUSTERS[n % 4]) for n in range(80)]


def judged_steady(samples: Sequence[Sample]) -> Claim:
    return steady(samples, CLUSTERS, at(0), at(8))


def test_steady_holds_when_all_is_answered_by_all() -> None:
    claim = judged_steady(calm())
    assert claim.held
    assert claim.figures["failed"] == 0
    assert claim.figures["clusters_serving"] == 4


def test_steady_breaks_on_one_failure() -> None:
    claim = judged_steady([*calm(), sample(3, 4, fault="status_503", status=503)])
    assert not claim.held
    assert "1 x status_503 at eu" in claim.why


def test_steady_breaks_when_a_cluster_served_nothing() -> None:
    claim = judged_steady([each for each in calm() for _ in range(2) if each.cluster != "us-2"])
    assert not claim.held
    assert "us-2" in claim.why


def test_steady_breaks_on_too_few_requests() -> None:
    assert not judged_steady(calm()[:20]).held


def test_steady_leaves_what_ended_later_to_later_claims() -> None:
    assert judged_steady([*calm(), sample(7.9, 9, fault="reset")]).held


# --- region_death_no_error ----------------------------------------------------------------------------


def deaths_samples() -> list[Sample]:
    steady_ones = [sample(9 + n / 10, 9.5 + n / 10, request=f"s{n}") for n in range(60)]
    caught = [sample(9, 13, cluster="ap-1", request=f"c{n}") for n in range(3)]
    broken = sample(9, 10.2, cluster="us-1", shape=STREAM, first=9.1, fault="in_band_error")
    return [*steady_ones, *caught, broken]


def deaths_dispatches() -> list[Dispatch]:
    first = [dispatch(9, 10.05, "us-1", request=f"c{n}", first=13, stream=n == 0) for n in range(3)]
    again = [
        dispatch(10.05, 13, "ap-1", request=f"c{n}", number=2, redispatch=n < 2, first=13) for n in range(3)
    ]
    return [*first, *again]


def judged_death(samples: Sequence[Sample], dispatches: Sequence[Dispatch]) -> Claim:
    return region_death_no_error(samples, dispatches, SURVIVORS, DEATH)


def test_region_death_holds_when_all_that_had_no_first_byte_was_answered() -> None:
    claim = judged_death(deaths_samples(), deaths_dispatches())
    assert claim.held, claim.why
    assert claim.figures["caught_without_first_byte"] == 3
    assert claim.figures["caught_streams"] == 1
    assert claim.figures["redispatched"] == 2
    assert claim.figures["retried"] == 1
    assert claim.figures["streams_broken_after_first_byte"] == 1
    assert claim.figures["recovered_within_ms"] == 3000


@pytest.mark.parametrize(
    "victim",
    [
        sample(9, 10.3, cluster="", status=503, fault="status_503"),
        sample(15, 15.1, fault="refused", status=0),
        # A stream that began after the death, and one from a cluster that lived: nobody excuses these.
        sample(11, 12, cluster="us-1", shape=STREAM, first=11.5, fault="in_band_error"),
        sample(9, 10.2, cluster="ap-1", shape=STREAM, first=9.1, fault="truncated"),
        # A stream refused before it began.
        sample(9, 10.2, cluster="us-1", shape=STREAM, first=9.5, status=503, fault="status_503"),
        # A whole answer has no first byte before its head.
        sample(9, 10.2, cluster="us-1", first=9.5, fault="truncated"),
    ],
)
def test_region_death_breaks_on_one_error_at_a_surviving_door(victim: Sample) -> None:
    claim = judged_death([*deaths_samples(), victim], deaths_dispatches())
    assert not claim.held
    assert claim.figures["errors"] == 1


def test_region_death_does_not_count_clients_of_the_dead_door() -> None:
    gone = sample(9, 10, door="us", fault="reset")
    assert judged_death([*deaths_samples(), gone], deaths_dispatches()).held


def test_region_death_breaks_when_the_death_caught_too_little() -> None:
    assert not judged_death(deaths_samples(), deaths_dispatches()[1:]).held
    answered_before = [dispatch(9, 9.5, "us-1", request=f"c{n}", first=9.5) for n in range(3)]
    assert not judged_death(deaths_samples(), answered_before).held


def test_region_death_breaks_on_too_few_requests() -> None:
    assert not judged_death(deaths_samples()[40:], deaths_dispatches()).held


# --- last_request_within_3s ---------------------------------------------------------------------------

LAST_REPORTS = {"us-1": at(9.9), "us-2": at(9.6)}


def detected() -> list[Dispatch]:
    return [dispatch(9.8, 10, "us-1"), dispatch(9.9, 10, "us-2"), dispatch(12.5, 12.6, "us-1")]


def heard() -> list[Sighting]:
    return [sighting(9.95, HealthState.HEALTHY, cluster) for cluster in DEAD]


def judged_last(dispatches: Sequence[Dispatch], reports: dict[str, Instant] | None = None) -> Claim:
    return last_request_within_3s(
        dispatches, heard(), LAST_REPORTS if reports is None else reports, SURVIVORS, DEATH
    )


def test_last_request_holds_within_the_limit() -> None:
    claim = judged_last(detected())
    assert claim.held, claim.why
    assert claim.figures["last_request_after_last_report_ms"] == 2600
    assert claim.figures["last_request_after_last_arrival_ms"] == 2550
    assert claim.figures["requests_sent_after_death"] == 1


def test_last_request_breaks_on_one_that_came_later() -> None:
    claim = judged_last([*detected(), dispatch(12.61, 12.7, "us-2")])
    assert not claim.held
    assert "3010 ms" in claim.why


def test_last_request_is_judged_at_surviving_routers_until_the_return() -> None:
    beyond = [dispatch(15, 16, "us-2", router="us"), dispatch(20, 21, "us-2")]
    assert judged_last([*detected(), *beyond]).held


def test_last_request_breaks_when_a_cluster_was_sent_nothing_before_it_died() -> None:
    claim = judged_last([each for each in detected() if each.cluster == "us-1"])
    assert not claim.held
    assert "us-2 was sent nothing" in claim.why


def test_last_request_breaks_without_a_report_to_count_from() -> None:
    assert not judged_last(detected(), {"us-1": at(9.9)}).held
    assert not judged_last(detected(), {}).held


# --- bus_outage_unnoticed -----------------------------------------------------------------------------

WATCHED = frozenset({("eu", "eu-1"), ("eu", "ap-1")})


def outage_samples() -> list[Sample]:
    return [sample(29 + n / 10, 29.5 + n / 10) for n in range(100)]


def outage_sightings() -> list[Sighting]:
    return [
        sighting(when, state, cluster, heard=heard_at)
        for _, cluster in sorted(WATCHED)
        for when, state, heard_at in (
            (30.2, HealthState.HEALTHY, 30.2),
            (31.5, HealthState.STALE, 30.2),
            (39, HealthState.HEALTHY, 39),
        )
    ]


def judged_outage(
    samples: Sequence[Sample],
    sightings: Sequence[Sighting],
    caught_up: float | None = 39,
    watched: frozenset[tuple[str, str]] = WATCHED,
) -> Claim:
    outage = Outage(at(30), at(38), None if caught_up is None else at(caught_up), watched)
    return bus_outage_unnoticed(samples, sightings, outage, ("ap-1", "eu-1"))


def test_bus_outage_holds_when_nobody_noticed_and_the_view_caught_up() -> None:
    claim = judged_outage(outage_samples(), outage_sightings())
    assert claim.held, claim.why
    assert claim.figures["catch_up_ms"] == 1000
    assert claim.figures["views_cut_off"] == 2


def test_bus_outage_breaks_on_one_failed_request() -> None:
    assert not judged_outage([*outage_samples(), sample(33, 34, fault="reset")], outage_sightings()).held


def test_bus_outage_breaks_when_a_report_came_through() -> None:
    leak = sighting(35, HealthState.STALE, "eu-1")
    claim = judged_outage(outage_samples(), [*outage_sightings(), leak])
    assert not claim.held
    assert claim.figures["reports_that_arrived"] == 1


def test_bus_outage_breaks_when_a_view_never_missed_a_report() -> None:
    heard_all_along = [
        s for s in outage_sightings() if s.cluster == "eu-1" or s.state is not HealthState.STALE
    ]
    assert not judged_outage(outage_samples(), heard_all_along).held


def test_bus_outage_breaks_when_a_living_cluster_was_lost() -> None:
    lost = sighting(34, HealthState.UNHEALTHY, "eu-1", heard=30.2)
    assert not judged_outage(outage_samples(), [*outage_sightings(), lost]).held


def test_bus_outage_breaks_when_the_view_does_not_catch_up() -> None:
    claim = judged_outage(outage_samples(), outage_sightings(), caught_up=None)
    assert not claim.held
    assert claim.figures["catch_up_ms"] == "never"
    assert not judged_outage(outage_samples(), outage_sightings(), caught_up=54).held


def test_bus_outage_breaks_when_a_cluster_was_trusted_by_nobody_before_it() -> None:
    claim = judged_outage(outage_samples(), outage_sightings(), watched=frozenset({("eu", "eu-1")}))
    assert not claim.held
    assert "no router trusted ap-1" in claim.why


def test_bus_outage_does_not_judge_a_view_that_had_lost_its_cluster_before() -> None:
    away = sighting(34, HealthState.UNHEALTHY, "eu-1", router="us", heard=30.2)
    assert judged_outage(outage_samples(), [*outage_sightings(), away]).held


def test_bus_outage_breaks_on_too_few_requests() -> None:
    assert not judged_outage(outage_samples()[:30], outage_sightings()).held
