"""The kind `RoutingPolicy`: timers of health, limits of retries, rules of weighting.

Every number has its unit in its name and the core's default; a document writes only what it
changes. A combination that the core refuses is reported at its section. No decision is made here.
"""

import re
from abc import abstractmethod
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic.alias_generators import to_camel

from services.core.policy import MAX_ATTEMPTS_LIMIT
from services.core.policy import FailoverPolicy as CoreFailover
from services.core.policy import HealthPolicy as CoreHealth
from services.core.policy import RoutingPolicy as CoreRouting
from services.core.policy import Timeouts as CoreTimeouts
from services.core.units import NS_PER_MS, Duration, ms
from services.wire.config.field_types import Bytes, Count, Kind, Ms, PositiveMs, Share
from services.wire.config.kinds import Metadata

_HEALTH = CoreHealth()
_FAILOVER = CoreFailover()
_TIMEOUTS = CoreTimeouts()
_ROUTING = CoreRouting()


def _ms(span: Duration) -> int:
    return span // NS_PER_MS


class _Section(Kind):
    """A section with a core value of its own, which has the last word on what fits together."""

    @abstractmethod
    def to_core(self) -> object:
        """Return the core value; raises `ValueError` for numbers that contradict each other."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        try:
            self.to_core()
        except ValueError as error:
            message = str(error)
            for name in type(self).model_fields:
                message = re.sub(rf"\b{name.removesuffix('_ms')}\b", to_camel(name), message)
            raise ValueError(message) from error
        return self


class Health(_Section):
    """Timers and thresholds of the health table; see `services.core.policy.HealthPolicy`."""

    silence_stale_ms: PositiveMs = _ms(_HEALTH.silence_stale)
    silence_unprobed_unhealthy_ms: PositiveMs = _ms(_HEALTH.silence_unprobed_unhealthy)
    probe_interval_ms: PositiveMs = _ms(_HEALTH.probe_interval)
    probe_interval_suspect_ms: PositiveMs = _ms(_HEALTH.probe_interval_suspect)
    probe_timeout_floor_ms: PositiveMs = _ms(_HEALTH.probe_timeout_floor)
    late_tick_ms: PositiveMs = _ms(_HEALTH.late_tick)
    load_decay_ms: PositiveMs = _ms(_HEALTH.load_decay)
    late_report_lag_ms: PositiveMs = _ms(_HEALTH.late_report_lag)
    connect_failures_to_eject: Count = _HEALTH.connect_failures_to_eject
    gateway_errors_to_eject: Count = _HEALTH.gateway_errors_to_eject
    ejection_base_ms: PositiveMs = _ms(_HEALTH.ejection_base)
    ejection_max_ms: PositiveMs = _ms(_HEALTH.ejection_max)
    ejection_max_share: Share = _HEALTH.ejection_max_share
    degraded_ready_share: Share = _HEALTH.degraded_ready_share
    degraded_saturation: Annotated[float, Field(gt=0, le=1000)] = _HEALTH.degraded_saturation
    probation_share: Share = _HEALTH.probation_share
    probation_concurrent: Count = _HEALTH.probation_concurrent
    probation_successes: Count = _HEALTH.probation_successes
    probation_probe_credit_after_ms: PositiveMs = _ms(_HEALTH.probation_probe_credit_after)
    ramp_window_ms: PositiveMs = _ms(_HEALTH.ramp_window)
    ramp_floor: Share = _HEALTH.ramp_floor
    returns_max: Count = _HEALTH.returns_max
    returns_window_ms: PositiveMs = _ms(_HEALTH.returns_window)

    def to_core(self) -> CoreHealth:
        """Return the core value."""
        return CoreHealth(
            silence_stale=ms(self.silence_stale_ms),
            silence_unprobed_unhealthy=ms(self.silence_unprobed_unhealthy_ms),
            probe_interval=ms(self.probe_interval_ms),
            probe_interval_suspect=ms(self.probe_interval_suspect_ms),
            probe_timeout_floor=ms(self.probe_timeout_floor_ms),
            late_tick=ms(self.late_tick_ms),
            load_decay=ms(self.load_decay_ms),
            late_report_lag=ms(self.late_report_lag_ms),
            connect_failures_to_eject=self.connect_failures_to_eject,
            gateway_errors_to_eject=self.gateway_errors_to_eject,
            ejection_base=ms(self.ejection_base_ms),
            ejection_max=ms(self.ejection_max_ms),
            ejection_max_share=self.ejection_max_share,
            degraded_ready_share=self.degraded_ready_share,
            degraded_saturation=self.degraded_saturation,
            probation_share=self.probation_share,
            probation_concurrent=self.probation_concurrent,
            probation_successes=self.probation_successes,
            probation_probe_credit_after=ms(self.probation_probe_credit_after_ms),
            ramp_window=ms(self.ramp_window_ms),
            ramp_floor=self.ramp_floor,
            returns_max=self.returns_max,
            returns_window=ms(self.returns_window_ms),
        )


class AttemptTimeouts(_Section):
    """Limits of one attempt and of the whole request; see `services.core.policy.Timeouts`."""

    connect_ms: PositiveMs = _ms(_TIMEOUTS.connect)
    first_byte_interactive_ms: PositiveMs = _ms(_TIMEOUTS.first_byte_interactive)
    first_byte_batch_ms: PositiveMs = _ms(_TIMEOUTS.first_byte_batch)
    idle_ms: PositiveMs = _ms(_TIMEOUTS.idle)
    total_ms: PositiveMs = _ms(_TIMEOUTS.total)
    commit_after_ms: PositiveMs = _ms(_TIMEOUTS.commit_after)

    def to_core(self) -> CoreTimeouts:
        """Return the core value."""
        return CoreTimeouts(
            connect=ms(self.connect_ms),
            first_byte_interactive=ms(self.first_byte_interactive_ms),
            first_byte_batch=ms(self.first_byte_batch_ms),
            idle=ms(self.idle_ms),
            total=ms(self.total_ms),
            commit_after=ms(self.commit_after_ms),
        )


class Failover(_Section):
    """Retries; see `services.core.policy.FailoverPolicy`."""

    max_attempts: Annotated[int, Field(ge=1, le=MAX_ATTEMPTS_LIMIT)] = _FAILOVER.max_attempts
    retry_bucket: Annotated[float, Field(ge=0, le=1000)] = _FAILOVER.retry_bucket
    retry_earned_per_request: Share = _FAILOVER.retry_earned_per_request
    replay_body_max_bytes: Bytes = _FAILOVER.replay_body_max_bytes
    replay_total_max_bytes: Bytes = _FAILOVER.replay_total_max_bytes
    timeouts: AttemptTimeouts = AttemptTimeouts()

    def to_core(self) -> CoreFailover:
        """Return the core value."""
        return CoreFailover(
            max_attempts=self.max_attempts,
            retry_bucket=self.retry_bucket,
            retry_earned_per_request=self.retry_earned_per_request,
            replay_body_max_bytes=self.replay_body_max_bytes,
            replay_total_max_bytes=self.replay_total_max_bytes,
            timeouts=self.timeouts.to_core(),
        )


class Routing(_Section):
    """Weights; see `services.core.policy.RoutingPolicy`. `panic` says what happens when nobody is healthy."""

    overprovisioning: Annotated[float, Field(ge=1, le=100)] = _ROUTING.overprovisioning
    panic_threshold: Share = _ROUTING.panic_threshold
    panic: Literal["route-anyway", "fail-503"] = "route-anyway"
    residency_max_policy_age_ms: Ms = _ms(_ROUTING.residency_max_policy_age)
    sheddable_saturation: Annotated[float, Field(gt=0, le=1000)] = _ROUTING.sheddable_saturation

    def to_core(self) -> CoreRouting:
        """Return the core value."""
        return CoreRouting(
            overprovisioning=self.overprovisioning,
            panic_threshold=self.panic_threshold,
            fail_when_none_healthy=self.panic == "fail-503",
            residency_max_policy_age=ms(self.residency_max_policy_age_ms),
            sheddable_saturation=self.sheddable_saturation,
        )


class RoutingPolicySpec(Kind):
    """The three sections; an absent one keeps its defaults."""

    health: Health = Health()
    failover: Failover = Failover()
    routing: Routing = Routing()


class RoutingPolicy(Kind):
    """How the fleet is judged, retried and weighted."""

    api_version: Literal["gir.dev/v1alpha1"]
    kind: Literal["RoutingPolicy"]
    metadata: Metadata
    spec: RoutingPolicySpec
