"""Hypothesis strategies for the core values that travel: all of them legal, unusual ones included."""

from hypothesis import strategies as st

from services.core.fleet import HealthReport, PodRecord, PodsReport, PodState, PoolReport, ReportId
from services.core.inference import Grants, ModelName, TenantId
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
from services.core.residency import ResidencyRule
from services.core.units import Duration, WallMs
from services.wire.messages import MAX_EXACT_INT

names = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,12}[a-z0-9])?", fullmatch=True)
jurisdictions = st.from_regex(r"[a-z0-9-]{2,8}", fullmatch=True).map(Jurisdiction)
regions = names.map(Region)
texts = st.text(min_size=1, max_size=20).filter(str.isprintable)
optional_texts = st.just("") | texts
models = texts.map(ModelName)
ordinals = st.integers(0, MAX_EXACT_INT)
wall = st.integers(0, (1 << 63) - 1).map(WallMs)
counts = st.none() | st.integers(0, (1 << 64) - 1)
measures = st.none() | st.floats(min_value=0, allow_nan=False, allow_infinity=False)
adapters = st.lists(texts, max_size=4).map(tuple)


@st.composite
def pool_reports(draw: st.DrawFn) -> PoolReport:
    total = draw(st.integers(0, (1 << 32) - 1))
    return PoolReport(
        pool=draw(names),
        model=draw(models),
        ready_endpoints=draw(st.integers(0, total)),
        total_endpoints=total,
        waiting=draw(counts),
        running=draw(counts),
        capacity_requests=draw(counts),
        capacity_tokens_per_s=draw(measures),
        kv_use_mean=draw(measures),
        kv_use_max=draw(measures),
        saturation=draw(measures),
        ttft_ms_p50=draw(measures),
        ttft_ms_p95=draw(measures),
        resident_adapters=draw(adapters),
        waiting_adapters=draw(adapters),
        adapters_truncated=draw(st.booleans()),
        engine=draw(optional_texts),
        tier=draw(optional_texts),
        warming_endpoints=draw(st.integers(0, (1 << 32) - 1)),
        warming_eta_ms=draw(counts),
        draining=draw(st.booleans()),
    )


def report_ids() -> st.SearchStrategy[ReportId]:
    return st.builds(ReportId, ordinals, ordinals)


def health_reports() -> st.SearchStrategy[HealthReport]:
    return st.builds(
        HealthReport,
        cluster=names.map(ClusterId),
        id=report_ids(),
        region=regions,
        jurisdiction=jurisdictions,
        observed_at_ms=wall,
        pools=st.lists(pool_reports(), max_size=3, unique_by=lambda p: (p.pool, p.model)).map(tuple),
        draining=st.booleans(),
    )


def pods_reports() -> st.SearchStrategy[PodsReport]:
    pods = st.builds(
        PodRecord,
        id=texts,
        address=texts,
        state=st.sampled_from(PodState),
        engine=optional_texts,
        version=optional_texts,
        since_ms=wall,
        reason=optional_texts,
    )
    return st.builds(
        PodsReport,
        cluster=names.map(ClusterId),
        pool=names,
        id=report_ids(),
        pods=st.lists(pods, max_size=4, unique_by=lambda pod: pod.id).map(tuple),
        pods_truncated=st.booleans(),
    )


def residency_rules() -> st.SearchStrategy[ResidencyRule]:
    return st.builds(
        ResidencyRule,
        allow_jurisdictions=st.none() | st.frozensets(jurisdictions, max_size=3),
        allow_regions=st.none() | st.frozensets(regions, max_size=3),
        deny_jurisdictions=st.frozensets(jurisdictions, max_size=3),
        deny_regions=st.frozensets(regions, max_size=3),
    )


durations = st.integers(1, 1 << 62).map(Duration)
shares = st.floats(0.001, 1)
small = st.integers(1, (1 << 32) - 1)


def health_policies() -> st.SearchStrategy[HealthPolicy]:
    return st.builds(
        HealthPolicy,
        silence_stale=st.integers(1, 1000).map(Duration),
        silence_unprobed_unhealthy=st.integers(1000, 1 << 62).map(Duration),
        probe_interval=durations,
        load_decay=durations,
        connect_failures_to_eject=small,
        ejection_max_share=shares,
        degraded_ready_share=shares,
        probation_concurrent=small,
        ramp_window=durations,
        ramp_floor=shares,
        returns_max=small,
    )


def failover_policies() -> st.SearchStrategy[FailoverPolicy]:
    return st.builds(
        FailoverPolicy,
        max_attempts=st.integers(1, 10),
        retry_bucket=st.floats(0, 1000),
        retry_earned_per_request=st.floats(0, 1),
        replay_body_max_bytes=st.integers(0, (1 << 64) - 1),
        timeouts=st.builds(Timeouts, connect=durations, total=durations, commit_after=durations),
    )


def policy_snapshots() -> st.SearchStrategy[PolicySnapshot]:
    clusters = st.builds(
        ClusterSpec,
        id=names.map(ClusterId),
        locality=st.builds(Locality, regions, jurisdictions),
        gateway_url=st.builds("http://{}:{}".format, names, st.integers(1, 65_535)),
        picker_address=optional_texts,
        probe_url=optional_texts,
    )
    tenants = st.builds(
        TenantPolicy,
        id=texts.map(TenantId),
        grants=st.builds(
            Grants,
            models=st.none() | st.frozensets(models, max_size=3),
            residency=residency_rules(),
            priority_ceiling=st.integers(-(1 << 31), (1 << 31) - 1),
        ),
    )
    keys = st.builds(TokenKey, kid=texts, public_key=st.binary(min_size=32, max_size=32))
    groups = st.lists(
        st.lists(models, min_size=1, max_size=3), max_size=3, unique_by=lambda group: group[0]
    ).map(_distinct_models)
    return st.builds(
        PolicySnapshot,
        revision=st.integers(1, MAX_EXACT_INT),
        published_at_ms=wall,
        clusters=st.lists(clusters, max_size=3, unique_by=lambda c: c.id).map(tuple),
        models=groups,
        tenants=st.lists(tenants, max_size=3, unique_by=lambda t: t.id).map(tuple),
        token_keys=st.lists(keys, max_size=2, unique_by=lambda k: k.kid).map(tuple),
        health=health_policies(),
        failover=failover_policies(),
        routing=st.builds(
            RoutingPolicy,
            overprovisioning=st.floats(1, 10),
            panic_threshold=st.floats(0, 1),
            fail_when_none_healthy=st.booleans(),
            residency_max_policy_age=durations,
            sheddable_saturation=st.floats(0.1, 10),
        ),
    )


def _distinct_models(groups: list[list[ModelName]]) -> tuple[ModelPolicy, ...]:
    """Drop repeated names: within one snapshot a name or alias reaches one model."""
    seen: set[ModelName] = set()
    kept = []
    for group in groups:
        fresh = [name for name in dict.fromkeys(group) if name not in seen]
        seen.update(fresh)
        if fresh:
            kept.append(ModelPolicy(fresh[0], tuple(fresh[1:])))
    return tuple(kept)
