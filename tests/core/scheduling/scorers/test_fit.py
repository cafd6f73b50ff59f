"""Scorers of fit: ranges of context, labels asked for, places shared, attributes between their ends."""

import pytest

from services.core.fleet import LoadReport
from services.core.scheduling.scorers.fit import (
    ATTRIBUTES,
    CONTEXT_LENGTH_LABEL,
    Attribute,
    ContextLength,
    HeaderLabel,
    Topology,
    attribute_values,
    context_range,
    context_score,
    shared_levels,
)
from services.core.scheduling.signals import NO_SIGNALS, Signals
from tests.core.scheduling.pods import arrive, endpoints, labelled, loaded, pod


@pytest.mark.parametrize(
    ("value", "span"),
    [
        ("0-8192", (0, 8192)),
        (None, None),
        ("8192", None),
        ("9-3", None),
        ("5-5", None),
        ("-1-4", None),
        ("a-b", None),
    ],
)
def test_a_context_range_is_two_numbers(value: str | None, span: tuple[int, int] | None) -> None:
    assert context_range(value) == span


@pytest.mark.parametrize(
    ("span", "tokens", "score"),
    [
        ((0, 10_000), 5_000, 0.3 + 0.7 * (0.7 / 2 + 0.3 * 0.5)),
        ((0, 10_000), 10_000, 0.3 + 0.7 * 0.7 / 2),
        ((0, 10_000), 11_000, 0.15),
        ((4_000, 10_000), 3_000, 0.15),
        (None, 5, 0.5),
    ],
)
def test_the_context_formula(span: tuple[int, int] | None, tokens: int, score: float) -> None:
    assert context_score(span, tokens) == pytest.approx(score)


def test_the_context_scorer_speaks_when_length_and_labels_are_known() -> None:
    before = labelled({CONTEXT_LENGTH_LABEL: "0-10000"}, {}, {CONTEXT_LENGTH_LABEL: "0-10000"})
    live = ContextLength().over(before)
    assert live(arrive(before)) is None
    score = context_score((0, 10_000), 100)
    assert live(arrive(before, Signals(prompt_tokens=100))) == pytest.approx([score, 0.5, score])
    unlabelled = labelled({}, {})
    assert ContextLength().over(unlabelled)(arrive(unlabelled, Signals(prompt_tokens=1))) is None


def test_a_header_asks_for_a_label() -> None:
    before = labelled({"tier": "gold"}, {"tier": "iron"}, {})
    live = HeaderLabel("x-tier", "tier").over(before)
    assert live(arrive(before, NO_SIGNALS)) is None
    assert live(arrive(before, Signals(headers={"x-tier": "gold"}))) == [1.0, 0.0, 0.0]


def test_nearer_places_score_higher() -> None:
    here = {"host": "h1", "rack": "r1", "zone": "z1", "region": "g1"}
    host, rack, zone, region = (
        "kubernetes.io/hostname",
        "topology.kubernetes.io/rack",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
    )
    before = labelled(
        {host: "h1", zone: "z1"}, {host: "h2", rack: "r1"}, {zone: "z1"}, {region: "g1"}, {zone: "z2"}, {}
    )
    assert shared_levels(before, here) == ["host", "rack", "zone", "region", None, None]
    assert Topology(here).over(before) == [1.0, 0.2, 0.05, 0.02, 0.0, 0.0]
    assert shared_levels(before, {"zone": "z1"}) == ["zone", None, "zone", None, None, None]
    with pytest.raises(ValueError, match="topology level 'shelf': must be one of host, rack, zone, region"):
        Topology({"shelf": "s"})


def test_every_measured_attribute_is_read_from_the_load() -> None:
    load = LoadReport(waiting=1, running=2, kv_use=0.3, saturation=0.4, ttft_ms=5, capacity_requests=6)
    assert [attribute_values(loaded(load), name) for name in ATTRIBUTES] == [[1], [2], [0.3], [0.4], [5], [6]]


def test_other_attributes_are_numbers_in_labels() -> None:
    before = endpoints(
        *(pod(f"p{n}", labels={"w": w}) for n, w in enumerate(("3", "x", "inf", "2.5"))), pod("q")
    )
    assert attribute_values(before, "w") == [3.0, None, None, 2.5, None]


@pytest.mark.parametrize(
    ("scorer", "expected"),
    [
        (Attribute("w"), [1.0, 0.5, 0.0, 0.5]),
        (Attribute("w", prefer_high=True), [0.0, 0.5, 1.0, 0.5]),
        (Attribute("w", span=(0.0, 40.0)), [0.75, 0.5, 0.25, 0.5]),
        (Attribute("w", prefer_high=True, span=(15.0, 25.0)), [0.0, 0.5, 1.0, 0.5]),
    ],
)
def test_an_attribute_scores_linearly_and_the_mean_where_it_is_missing(
    scorer: Attribute, expected: list[float]
) -> None:
    assert scorer.over(labelled({"w": "10"}, {"w": "20"}, {"w": "30"}, {})) == pytest.approx(expected)


def test_a_fixed_range_has_two_ends() -> None:
    with pytest.raises(ValueError, match="span: the least value must lie below the largest"):
        Attribute("w", span=(2.0, 2.0))
