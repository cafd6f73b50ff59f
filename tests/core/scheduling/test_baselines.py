"""Strategies by name, in our spelling and in SageMaker's."""

import pytest

from services.core.scheduling.baselines import SAGEMAKER, STRATEGIES, strategy
from services.core.scheduling.profile import ENDPOINTS, Picker


@pytest.mark.parametrize(
    ("ours", "theirs", "picker"),
    [
        ("random", "RANDOM", Picker.RANDOM),
        ("round-robin", "ROUND_ROBIN", Picker.ROUND_ROBIN),
        ("least-outstanding", "LEAST_OUTSTANDING_REQUESTS", Picker.LEAST_OUTSTANDING),
        ("prefix-aware", "PREFIX_AWARE", Picker.MAX_SCORE),
    ],
)
def test_both_spellings_are_one_strategy(ours: str, theirs: str, picker: Picker) -> None:
    assert strategy(ours) is strategy(theirs)
    assert strategy(ours).picker is picker
    assert not strategy(ours).panic_needs_dead_fleet


def test_every_spelling_leads_to_a_strategy_and_prefix_aware_is_the_default() -> None:
    assert set(SAGEMAKER.values()) == set(STRATEGIES)
    assert strategy("prefix-aware") is ENDPOINTS


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match=r"strategy 'luck': must be one of random, .*PREFIX_AWARE"):
        strategy("luck")
