"""One voice per cluster: hand-over, fencing, succession, clocks set back."""

from hypothesis import given
from hypothesis import strategies as st

from services.core.fleet import ReportId
from services.core.pods.fencing import Standing, next_id, seen, take_over, tick
from services.core.units import Instant, WallMs, seconds

HOUR_MS = 3_600_000


def at(second: float) -> Instant:
    return Instant(seconds(second))


def test_the_first_publisher_of_a_cluster_takes_the_wall_time() -> None:
    standing, first = next_id(take_over(WallMs(1000), None))
    assert first == ReportId(1000, 1)
    assert next_id(standing)[1] == ReportId(1000, 2)


def test_a_restart_with_the_clock_an_hour_back_still_speaks_last() -> None:
    last = 1_700_000_000_000
    assert take_over(WallMs(last - HOUR_MS), last).epoch == last + 1


def test_ones_own_reports_fence_nobody() -> None:
    standing, report = next_id(take_over(WallMs(1000), None))
    assert seen(standing, report, at(1)) == standing
    assert seen(standing, ReportId(999, 50), at(1)) == standing


def test_the_newer_of_two_is_killed_and_the_older_takes_over_with_a_higher_epoch() -> None:
    older = take_over(WallMs(1000), None)
    older = seen(older, ReportId(2000, 1), at(10))
    assert not older.may_publish
    older = seen(older, ReportId(2000, 2), at(10.5))
    older = tick(older, at(11.4))
    assert not older.may_publish
    older = tick(older, at(11.5))
    assert older == Standing(2001)
    assert older.may_publish


def test_a_fenced_publisher_remembers_the_highest_rival() -> None:
    standing = seen(take_over(WallMs(1), None), ReportId(30, 1), at(0))
    standing = seen(standing, ReportId(20, 1), at(0.5))
    assert tick(standing, at(2)).epoch == 31


def test_a_rival_of_the_same_millisecond_is_recognised_by_its_sequence() -> None:
    standing, _ = next_id(take_over(WallMs(1000), None))
    assert not seen(standing, ReportId(1000, 2), at(0)).may_publish


def test_time_alone_does_nothing_to_who_speaks() -> None:
    standing = take_over(WallMs(1000), None)
    assert tick(standing, at(99)) == standing


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 700)), max_size=80))
def test_two_publishers_never_issue_the_same_id_and_each_sees_its_own_ids_grow(
    steps: list[tuple[bool, int]],
) -> None:
    """Invariant: with both reading the bus, ids of one publisher only grow, and no id is used twice."""
    both = [take_over(WallMs(1000), None), take_over(WallMs(1001), None)]
    issued: list[list[ReportId]] = [[], []]
    now_ms = 0
    for second_speaks, gap_ms in steps:
        now_ms += gap_ms
        now = at(now_ms / 1000)
        who = int(second_speaks)
        both[who] = tick(both[who], now)
        if not both[who].may_publish:
            continue
        both[who], report = next_id(both[who])
        assert not issued[who] or report > issued[who][-1]
        assert report not in issued[1 - who]
        issued[who].append(report)
        both = [seen(standing, report, now) for standing in both]
