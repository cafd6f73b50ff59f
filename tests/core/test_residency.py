"""Residency: rules only narrow, deny wins, an unknown place is outside every rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.locality import Jurisdiction, Locality, Region
from services.core.residency import ANYWHERE, ResidencyRule, narrow

JURISDICTIONS = [Jurisdiction(code) for code in ("eu", "us", "in")]
REGIONS = [Region(name) for name in ("eu-west", "us-east", "ap-south")]
PLACES = [Locality(region, jurisdiction) for region in REGIONS for jurisdiction in JURISDICTIONS]
EU_WEST, US_EAST = PLACES[0], PLACES[4]
NAMELESS = [
    Locality(Region(""), JURISDICTIONS[0]),
    Locality(REGIONS[0], Jurisdiction("")),
]


def jurisdictions(*codes: str) -> frozenset[Jurisdiction]:
    return frozenset(Jurisdiction(code) for code in codes)


def regions(*names: str) -> frozenset[Region]:
    return frozenset(Region(name) for name in names)


rules = st.builds(
    ResidencyRule,
    st.one_of(st.none(), st.frozensets(st.sampled_from(JURISDICTIONS))),
    st.one_of(st.none(), st.frozensets(st.sampled_from(REGIONS))),
    st.frozensets(st.sampled_from(JURISDICTIONS)),
    st.frozensets(st.sampled_from(REGIONS)),
)


@pytest.mark.parametrize(
    ("rule", "eu_west", "us_east"),
    [
        (ANYWHERE, True, True),
        (ResidencyRule(allow_jurisdictions=jurisdictions("eu")), True, False),
        (ResidencyRule(allow_regions=regions("us-east")), False, True),
        (ResidencyRule(deny_jurisdictions=jurisdictions("eu")), False, True),
        (ResidencyRule(deny_regions=regions("us-east")), True, False),
        (ResidencyRule(jurisdictions("eu"), regions("us-east")), False, False),
        (ResidencyRule(jurisdictions("eu"), deny_jurisdictions=jurisdictions("eu")), False, False),
        (ResidencyRule(allow_jurisdictions=jurisdictions()), False, False),
        (ResidencyRule(allow_jurisdictions=jurisdictions("mars")), False, False),
    ],
)
def test_what_a_rule_allows(rule: ResidencyRule, eu_west: bool, us_east: bool) -> None:
    assert (rule.allows(EU_WEST), rule.allows(US_EAST)) == (eu_west, us_east)


@pytest.mark.parametrize("place", NAMELESS)
def test_a_place_without_a_name_is_outside_every_rule_that_excludes_anything(place: Locality) -> None:
    assert ANYWHERE.allows(place)
    assert not ResidencyRule(jurisdictions("eu")).allows(place)
    assert not ResidencyRule(deny_regions=regions("us-east")).allows(place)


@pytest.mark.parametrize(
    ("rule", "nowhere"),
    [
        (ANYWHERE, False),
        (ResidencyRule(jurisdictions("eu", "us"), deny_jurisdictions=jurisdictions("eu")), False),
        (ResidencyRule(jurisdictions("eu"), deny_jurisdictions=jurisdictions("eu", "us")), True),
        (ResidencyRule(allow_jurisdictions=jurisdictions()), True),
        (ResidencyRule(allow_regions=regions()), True),
        (ResidencyRule(deny_jurisdictions=jurisdictions("eu")), False),
    ],
)
def test_a_rule_knows_that_it_can_hold_nowhere(rule: ResidencyRule, nowhere: bool) -> None:
    assert rule.nowhere is nowhere


def test_an_empty_intersection_is_nowhere_and_never_anywhere() -> None:
    both = narrow(ResidencyRule(jurisdictions("eu")), ResidencyRule(jurisdictions("us")))
    assert both.nowhere
    assert not both.unrestricted


@given(rules, rules)
def test_narrowing_holds_exactly_where_both_hold(first: ResidencyRule, second: ResidencyRule) -> None:
    """Invariant: for every place, narrow(a, b) allows it if and only if a and b both allow it."""
    both = narrow(first, second)
    for place in [*PLACES, *NAMELESS]:
        assert both.allows(place) is (first.allows(place) and second.allows(place))


@given(rules)
def test_what_holds_nowhere_allows_no_place(rule: ResidencyRule) -> None:
    """Invariant: nowhere implies that no place is allowed; unrestricted implies that every place is."""
    if rule.nowhere:
        assert not any(rule.allows(place) for place in PLACES)
    if rule.unrestricted:
        assert all(rule.allows(place) for place in [*PLACES, *NAMELESS])
