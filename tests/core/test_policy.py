"""Policy is valid from birth: defaults are the published numbers, contradictions are refused by name."""

from collections.abc import Callable

import pytest

from services.core.inference import Grants, ModelName, TenantId, TrafficClass
from services.core.locality import ClusterId, Jurisdiction, Locality, Region
from services.core.policy import (
    ClusterSpec,
    FailoverPolicy,
    HealthPolicy,
    ModelPolicy,
    PolicySnapshot,
    RoutingPolicy,
    TenantPolicy,
    Timeouts,
    TokenKey,
)
from services.core.units import WallMs, ms, seconds

EU_WEST = Locality(Region("eu-west"), Jurisdiction("eu"))


def spec(
    name: str = "eu-1",
    region: str = "eu-west",
    jurisdiction: str = "eu",
    gateway_url: str = "http://127.0.0.1:8000",
) -> ClusterSpec:
    return ClusterSpec(ClusterId(name), Locality(Region(region), Jurisdiction(jurisdiction)), gateway_url)


def snapshot(**parts: object) -> PolicySnapshot:
    return PolicySnapshot(**{"revision": 1, "published_at_ms": WallMs(0), **parts})  # type: ignore[arg-type] # Named parts.


def test_defaults_are_the_published_numbers() -> None:
    policy = snapshot(clusters=(spec(),))
    assert (policy.failover.max_attempts, policy.failover.retry_bucket) == (3, 3.0)
    assert policy.failover.retry_earned_per_request == 0.2
    assert policy.failover.timeouts.commit_after == seconds(10)
    assert policy.health.silence_stale == ms(1250)
    assert (policy.routing.overprovisioning, policy.routing.panic_threshold) == (1.4, 0.0)
    assert not policy.routing.fail_when_none_healthy
    assert policy.clusters[0].locality == EU_WEST


@pytest.mark.parametrize(
    ("traffic_class", "expected_s"),
    [(TrafficClass.INTERACTIVE, 30), (TrafficClass.STANDARD, 30), (TrafficClass.BATCH, 300)],
)
def test_only_batch_waits_long_for_the_first_byte(traffic_class: TrafficClass, expected_s: float) -> None:
    assert Timeouts().first_byte(traffic_class) == seconds(expected_s)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: spec(name="EU"), "cluster id 'EU'"),
        (lambda: spec(region="eu west"), "region 'eu west'"),
        (lambda: spec(jurisdiction="E"), "jurisdiction 'E'"),
        (lambda: spec(gateway_url="ftp://eu-1"), "cluster eu-1 gateway_url 'ftp://eu-1'"),
        (lambda: spec(gateway_url="http://"), "cluster eu-1 gateway_url 'http://'"),
        (lambda: spec(gateway_url="http://eu-1:99999"), "cluster eu-1 gateway_url 'http://eu-1:99999'"),
        (lambda: spec(gateway_url="http://eu-1:0"), "cluster eu-1 gateway_url 'http://eu-1:0'"),
        (lambda: spec(gateway_url="http://[eu-1"), "cluster eu-1 gateway_url"),
        (lambda: spec(gateway_url="http://eu-1/v1"), "must be an origin"),
        (lambda: Timeouts(connect=ms(0)), "connect: must be positive"),
        (lambda: Timeouts(total=ms(0)), "total: must be positive"),
        (lambda: FailoverPolicy(retry_bucket=-1), "retry_bucket: must not be negative"),
        (lambda: HealthPolicy(silence_stale=ms(0)), "silence_stale: must be positive"),
        (lambda: HealthPolicy(silence_unprobed_unhealthy=seconds(1)), "silence_unprobed_unhealthy"),
        (lambda: HealthPolicy(ramp_floor=0), "ramp_floor"),
        (lambda: HealthPolicy(ramp_window=ms(0)), "ramp_window"),
        (lambda: HealthPolicy(ejection_max_share=0), "ejection_max_share"),
        (lambda: HealthPolicy(connect_failures_to_eject=0), "connect_failures_to_eject"),
        (lambda: HealthPolicy(gateway_errors_to_eject=0), "gateway_errors_to_eject"),
        (lambda: HealthPolicy(load_decay=ms(0)), "load_decay: must be positive"),
        (lambda: HealthPolicy(probe_interval=ms(0)), "probe_interval: must be positive"),
        (lambda: HealthPolicy(ejection_max=seconds(1)), "ejection_max: must not be shorter"),
        (lambda: HealthPolicy(degraded_ready_share=1.1), "degraded_ready_share"),
        (lambda: HealthPolicy(probation_share=-0.1), "probation_share"),
        (lambda: FailoverPolicy(max_attempts=0), "max_attempts 0: must lie in 1..10"),
        (lambda: FailoverPolicy(max_attempts=11), "max_attempts 11"),
        (lambda: FailoverPolicy(retry_earned_per_request=1.1), "retry_earned_per_request"),
        (lambda: RoutingPolicy(overprovisioning=0.9), "overprovisioning"),
        (lambda: RoutingPolicy(panic_threshold=1.1), "panic_threshold"),
        (lambda: RoutingPolicy(sheddable_saturation=0), "sheddable_saturation"),
        (lambda: snapshot(revision=0), "revision 0: must be at least 1"),
        (lambda: snapshot(clusters=(spec(), spec())), "cluster 'eu-1': declared twice"),
        (
            lambda: snapshot(tenants=(TenantPolicy(TenantId("t"), Grants()),) * 2),
            "tenant 't': declared twice",
        ),
        (lambda: snapshot(token_keys=(TokenKey("k", b"\0" * 32),) * 2), "token key 'k': declared twice"),
        (
            lambda: snapshot(
                models=(ModelPolicy(ModelName("a"), (ModelName("b"),)), ModelPolicy(ModelName("b")))
            ),
            "model or alias 'b': declared twice",
        ),
    ],
)
def test_a_contradiction_is_refused_by_name(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
