"""Profiles are valid from birth, and say what they need of a request and of the endpoints."""

import pytest

from services.core.fleet import HealthState
from services.core.outcomes import DropReason
from services.core.scheduling.endpoint_filters import PrefixAffinity, SessionPin, SloHeadroom
from services.core.scheduling.profile import (
    CLUSTERS,
    ENDPOINTS,
    FALLBACKS_DEFAULT,
    FALLBACKS_MOST,
    SchedulingProfile,
    Weighted,
    endpoint_profile,
)
from services.core.scheduling.scorers.affinity import Session
from services.core.scheduling.scorers.fit import Attribute, HeaderLabel
from services.core.scheduling.scorers.latency import Latency
from services.core.scheduling.scorers.load import KvUse, Queue


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_a_weight_is_finite_and_never_inverts_a_scorer(weight: float) -> None:
    with pytest.raises(ValueError, match="weight of scorer 'queue': must be a finite number, not negative"):
        Weighted(Queue(), weight)


@pytest.mark.parametrize("fallbacks", [-1, FALLBACKS_MOST + 1])
def test_a_request_has_points_for_so_many_fallbacks_only(fallbacks: int) -> None:
    with pytest.raises(ValueError, match=r"fallbacks: must lie in 0\.\."):
        endpoint_profile(fallbacks=fallbacks)


def test_no_profile_revives_what_nothing_has_vouched_for() -> None:
    assert HealthState.UNKNOWN not in CLUSTERS.revived | ENDPOINTS.revived


def test_default_weights_are_the_fields_and_adapters_count_where_one_is_asked_for() -> None:
    weights = [(weighted.name, weighted.weight) for weighted in ENDPOINTS.scorers]
    assert weights == [("queue", 2.0), ("kv_use", 2.0), ("prefix", 3.0), ("lora", 2.0)]
    assert ENDPOINTS.fallbacks == FALLBACKS_DEFAULT


def test_each_tier_has_words_of_its_own() -> None:
    assert CLUSTERS.words.nobody is DropReason.NO_HEALTHY_CLUSTER
    assert ENDPOINTS.words.nobody is DropReason.NO_ENDPOINTS


def test_headers_are_those_that_scorers_read() -> None:
    profile = endpoint_profile(scorers=(Weighted(HeaderLabel("x-tier", "tier")), Weighted(Queue())))
    assert profile.headers == {"x-tier"}
    assert ENDPOINTS.headers == frozenset()


@pytest.mark.parametrize(
    ("profile", "reads"),
    [
        (ENDPOINTS, False),
        (endpoint_profile(scorers=(Weighted(KvUse()), Weighted(Attribute("kv_use")))), False),
        (endpoint_profile(filters=(SessionPin(),)), False),
        (endpoint_profile(filters=(SessionPin(), PrefixAffinity())), True),
        (endpoint_profile(filters=(SloHeadroom(),)), True),
        (endpoint_profile(scorers=(Weighted(Latency()),)), True),
        (endpoint_profile(scorers=(Weighted(Attribute("ttft_ms")),)), True),
    ],
)
def test_measured_latency_is_asked_for_only_where_it_is_used(profile: SchedulingProfile, reads: bool) -> None:
    assert profile.reads_ttft is reads


@pytest.mark.parametrize(
    ("profile", "reads"),
    [
        (ENDPOINTS, True),
        (endpoint_profile(scorers=(Weighted(Queue()),), filters=(SessionPin(),)), False),
        (endpoint_profile(filters=(SessionPin(), PrefixAffinity())), True),
        (endpoint_profile(scorers=(Weighted(Latency()),)), True),
    ],
)
def test_a_prompt_is_looked_up_only_where_it_is_used(profile: SchedulingProfile, reads: bool) -> None:
    assert profile.reads_prefix is reads


@pytest.mark.parametrize(
    ("profile", "reads"),
    [
        (ENDPOINTS, False),
        (endpoint_profile(filters=(PrefixAffinity(), SessionPin())), True),
        (endpoint_profile(scorers=(Weighted(Queue()), Weighted(Session()))), True),
    ],
)
def test_sessions_are_kept_only_where_they_are_used(profile: SchedulingProfile, reads: bool) -> None:
    assert profile.reads_sessions is reads
