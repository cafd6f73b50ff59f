"""Label values from requests are bounded; names of the configuration always show."""

from services.adapters.telemetry.cardinality import LABEL_VALUES_MAX, OTHER, CappedLabel


def test_values_beyond_the_cap_are_other_and_early_ones_stay() -> None:
    label = CappedLabel()
    names = [f"model-{number}" for number in range(LABEL_VALUES_MAX)]
    assert [label.fold(name) for name in names] == names
    assert label.fold("one more") == OTHER
    assert label.fold(names[0]) == names[0]


def test_known_names_are_never_folded() -> None:
    label = CappedLabel(["declared"], most=0)
    assert (label.fold("declared"), label.fold("invented")) == ("declared", OTHER)
