"""Profiles are valid from birth."""

import pytest

from services.core.fleet import HealthState
from services.core.scheduling.profile import CLUSTERS, ENDPOINTS, Picker, SchedulingProfile


def test_a_scorer_must_exist_and_weigh_something() -> None:
    with pytest.raises(ValueError, match="must be one of kv_use, queue, running"):
        SchedulingProfile(Picker.MAX_SCORE, (("luck", 1.0),))
    with pytest.raises(ValueError, match="must not be negative"):
        SchedulingProfile(Picker.MAX_SCORE, (("queue", -1.0),))


def test_no_profile_revives_what_nothing_has_vouched_for() -> None:
    assert HealthState.UNKNOWN not in CLUSTERS.revived | ENDPOINTS.revived


def test_default_weights_are_the_fields() -> None:
    assert ENDPOINTS.scorers == (("queue", 2.0), ("kv_use", 2.0))
