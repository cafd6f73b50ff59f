"""Filters of tier 1: who stays, and that wishes never empty the choice."""

from collections.abc import Callable

import pytest

from services.core.fleet import LoadReport
from services.core.outcomes import DropReason
from services.core.scheduling.endpoint_filters import (
    AttributeRange,
    EndpointFilter,
    LabelSelector,
    Operator,
    PrefixAffinity,
    Requirement,
    SessionPin,
    SloHeadroom,
    TopologyAffinity,
    Utilization,
)
from services.core.scheduling.endpoints import Endpoints
from services.core.scheduling.signals import NO_SIGNALS, Signals
from tests.core.scheduling.pods import arrive, labelled, loaded


def kept(
    each: EndpointFilter, before: Endpoints, signals: Signals = NO_SIGNALS, point: float = 0.5
) -> list[int] | None:
    places = each.over(before)(arrive(before, signals, point=point))
    return None if places is None else list(places)


@pytest.mark.parametrize(
    ("requirement", "places"),
    [
        (Requirement("a", Operator.IN, frozenset("12")), [0, 1]),
        (Requirement("a", Operator.NOT_IN, frozenset("1")), [1, 2]),
        (Requirement("a", Operator.EXISTS), [0, 1]),
        (Requirement("a", Operator.DOES_NOT_EXIST), [2]),
        (Requirement("a", Operator.IN, frozenset("9")), []),
    ],
)
def test_labels_are_selected_as_kubernetes_does(requirement: Requirement, places: list[int]) -> None:
    assert kept(LabelSelector((requirement,)), labelled({"a": "1"}, {"a": "2"}, {})) == places


def test_every_requirement_must_be_met() -> None:
    selector = LabelSelector(
        (Requirement("a", Operator.EXISTS), Requirement("b", Operator.IN, frozenset("x")))
    )
    assert kept(selector, labelled({"a": "1"}, {"a": "1", "b": "x"}, {"b": "x"})) == [1]


@pytest.mark.parametrize(
    ("operator", "values"), [(Operator.IN, ""), (Operator.NOT_IN, ""), (Operator.EXISTS, "x")]
)
def test_a_requirement_has_values_where_its_operator_needs_them(operator: Operator, values: str) -> None:
    with pytest.raises(ValueError, match="label 'a': In and NotIn need values"):
        Requirement("a", operator, frozenset(values))


def test_a_session_pins_its_endpoint_while_it_is_a_candidate() -> None:
    before = labelled({}, {})
    assert kept(SessionPin(), before) is None
    assert kept(SessionPin(), before, Signals(session="p1")) == [1]
    assert kept(SessionPin(), before, Signals(session="gone")) is None


def holding(**matched: int) -> Signals:
    return Signals(matched, total_blocks=10, block_tokens=100)


IDLE = LoadReport(waiting=0, running=0)


def test_holders_of_most_of_the_prompt_are_kept_and_nobody_is_no_condition() -> None:
    before = loaded(IDLE, IDLE, IDLE)
    assert kept(PrefixAffinity(), before) is None
    assert kept(PrefixAffinity(), before, holding(p0=7)) is None
    assert kept(PrefixAffinity(), before, holding(p2=8, p1=10, p0=7)) == [1, 2]


def test_holders_are_left_when_waiting_for_them_costs_more_than_the_penalty() -> None:
    before = loaded(
        LoadReport(waiting=0, running=1, ttft_ms=30_000), LoadReport(waiting=0, running=1, ttft_ms=100)
    )
    assert kept(PrefixAffinity(), before, holding(p0=9)) is None
    assert kept(PrefixAffinity(penalty_ms=40_000), before, holding(p0=9)) == [0]


def test_unmeasured_endpoints_are_judged_by_own_tokens_ahead() -> None:
    """p0 has 5,000 own tokens ahead at 1,000 a second, p1 none and the whole prompt of 1,000 to read."""
    before = loaded(IDLE, IDLE)
    arrival = arrive(before, holding(p0=10), tokens={"p0": 5_000})
    assert PrefixAffinity(peak_tokens_per_s=1_000, penalty_ms=4_000).over(before)(arrival) == [0]
    assert PrefixAffinity(peak_tokens_per_s=1_000, penalty_ms=3_999).over(before)(arrival) is None


def test_a_holder_above_the_bound_is_no_holder() -> None:
    before = loaded(LoadReport(running=9, waiting=0), IDLE, IDLE)
    assert kept(PrefixAffinity(), before, holding(p0=10)) is None
    assert kept(PrefixAffinity(), before, holding(p0=10, p1=10)) == [1]


def test_a_target_leaves_those_predicted_to_meet_it_and_now_and_then_the_others() -> None:
    before = loaded(LoadReport(ttft_ms=100), LoadReport(ttft_ms=900), LoadReport())
    assert kept(SloHeadroom(), before) is None
    wanted = Signals(ttft_slo_ms=500)
    assert kept(SloHeadroom(), before, wanted) == [0, 2]
    assert kept(SloHeadroom(), before, wanted, point=0.005) == [1]
    assert kept(SloHeadroom(), loaded(LoadReport(ttft_ms=900)), wanted) == [0]
    assert kept(SloHeadroom(), loaded(LoadReport(ttft_ms=100)), wanted, point=0.0) == [0]


def test_saturated_endpoints_leave_unless_all_are() -> None:
    free, unknown, full = LoadReport(saturation=0.9), LoadReport(), LoadReport(saturation=1.2)
    assert kept(Utilization(), loaded(free, full, unknown)) == [0, 2]
    assert kept(Utilization(headroom=0.25), loaded(free, full)) is None
    assert kept(Utilization(), loaded(full, full)) is None


def test_only_near_endpoints_stay() -> None:
    zone, region = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
    before = labelled({zone: "z1", region: "g1"}, {zone: "z2", region: "g1"}, {})
    here = {"zone": "z1", "region": "g1"}
    assert kept(TopologyAffinity(here, "zone"), before) == [0]
    assert kept(TopologyAffinity(here, "region"), before) == [0, 1]
    assert kept(TopologyAffinity(here), before) == []


def test_an_attribute_lies_in_its_range() -> None:
    before = labelled({"w": "1"}, {"w": "5"}, {})
    assert kept(AttributeRange("w", high=2), before) == [0, 2]
    assert kept(AttributeRange("w", low=2, keep_missing=False), before) == [1]
    assert kept(AttributeRange("w", low=9, keep_missing=False), before) == []
    assert kept(AttributeRange("w", low=9, keep_missing=False, keep_all_when_empty=True), before) is None


def test_only_what_a_label_demands_binds_fallbacks_and_only_load_is_back_pressure() -> None:
    binding = (LabelSelector(()), TopologyAffinity(), AttributeRange("w"))
    wishes = (SessionPin(), PrefixAffinity(), SloHeadroom(), Utilization())
    assert all(each.binding for each in binding)
    assert not any(each.binding for each in wishes)
    saturated = {each.name for each in (*binding, *wishes) if each.reason is DropReason.SATURATED}
    assert saturated == {"utilization", "attribute"}


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: PrefixAffinity(threshold=0), "threshold: must lie above 0"),
        (lambda: PrefixAffinity(penalty_ms=-1), "penalty_ms: not negative"),
        (lambda: PrefixAffinity(peak_tokens_per_s=0), "peak_tokens_per_s: above 0"),
        (lambda: SloHeadroom(epsilon=2), "epsilon: must lie in"),
        (lambda: SloHeadroom(peak_tokens_per_s=0), "peak_tokens_per_s: must be above 0"),
        (lambda: Utilization(threshold=0), "threshold: must be above 0"),
        (lambda: Utilization(headroom=-1), "headroom: must not be negative"),
        (lambda: TopologyAffinity(level="shelf"), "topology level 'shelf'"),
        (lambda: AttributeRange("w", 2, 1), "low: must not exceed high"),
    ],
)
def test_filters_are_valid_from_birth(make: Callable[[], EndpointFilter], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        make()
