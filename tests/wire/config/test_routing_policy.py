import dataclasses

import pytest

from services.core import policy as core
from services.core.units import ms, seconds
from services.wire.config.field_types import Kind
from services.wire.config.load import load
from services.wire.config.routing_policy import AttemptTimeouts, Failover, Health, Routing, RoutingPolicySpec
from tests.wire.config import example


def test_an_empty_policy_is_the_defaults_of_the_core() -> None:
    spec = RoutingPolicySpec()
    assert spec.health.to_core() == core.HealthPolicy()
    assert spec.failover.to_core() == core.FailoverPolicy()
    assert spec.routing.to_core() == core.RoutingPolicy()


def test_what_is_written_changes_and_the_rest_stays() -> None:
    spec = load(example.ROUTING_POLICY).routing_policies[0].value.spec
    assert spec.health.to_core() == core.HealthPolicy(silence_stale=seconds(2), ramp_floor=0.2)
    assert spec.failover.to_core() == core.FailoverPolicy(
        max_attempts=2, timeouts=core.Timeouts(connect=ms(500))
    )
    assert spec.routing.to_core() == core.RoutingPolicy(overprovisioning=2.0, fail_when_none_healthy=True)


@pytest.mark.parametrize(
    ("section", "settings"),
    [
        (Health, core.HealthPolicy),
        (Failover, core.FailoverPolicy),
        (Routing, core.RoutingPolicy),
        (AttemptTimeouts, core.Timeouts),
    ],
)
def test_every_setting_of_the_core_can_be_written(section: type[Kind], settings: type) -> None:
    """A setting the core gains must be reachable from a file: each field changes its core value."""
    renamed = {"panic": "fail_when_none_healthy"}
    names = {renamed.get(name, name.removesuffix("_ms")): name for name in section.model_fields}
    assert names.keys() == {field.name for field in dataclasses.fields(settings)}
    for core_name, name in names.items():
        default = getattr(section(), name)
        if not isinstance(default, int | float):
            continue
        changed = section(**{name: default + 1 if isinstance(default, int) else default / 2 + 0.5})
        core_value = getattr(changed, "to_core")()  # noqa: B009  # `Kind` does not declare it; each section does.
        before = getattr(section(), "to_core")()  # noqa: B009  # As above.
        if default != getattr(changed, name):
            assert getattr(core_value, core_name) != getattr(before, core_name), name


@pytest.mark.parametrize(
    ("line", "path", "rule"),
    [
        ("health: {silenceStaleMs: 9000}", "spec.health", "silenceUnprobedUnhealthyMs: must not be shorter"),
        ("health: {rampFloor: 0}", "spec.health", "rampFloor: must lie in (0, 1]"),
        ("health: {silenceStaleMs: 0}", "spec.health.silenceStaleMs", "greater than or equal to 1"),
        ("health: {silenceStaleMs: '2000'}", "spec.health.silenceStaleMs", "must be a whole number"),
        ("health: {silenceStaleMs: 1.5}", "spec.health.silenceStaleMs", "must be a whole number"),
        ("health: {silenceStaleMs: null}", "spec.health.silenceStaleMs", "must be a whole number"),
        (
            "health: {silenceStaleMs: 999999999999}",
            "spec.health.silenceStaleMs",
            "less than or equal to 604800000",
        ),
        ("health: {silenceStale: 1}", "spec.health.silenceStale", "is not a field of this kind"),
        ("health: {silence_stale_ms: 1}", "spec.health.silence_stale_ms", "is not a field of this kind"),
        ("health: {ejectionMaxShare: .nan}", "spec.health.ejectionMaxShare", "must be a finite number"),
        ("health: {probationShare: 1.5}", "spec.health.probationShare", "less than or equal to 1"),
        ("health: []", "spec.health", "must be a mapping"),
        ("failover: {maxAttempts: 11}", "spec.failover.maxAttempts", "less than or equal to 10"),
        ("failover: {maxAttempts: true}", "spec.failover.maxAttempts", "must be a whole number"),
        (
            "failover: {timeouts: {totalMs: -1}}",
            "spec.failover.timeouts.totalMs",
            "greater than or equal to 1",
        ),
        ("routing: {panic: maybe}", "spec.routing.panic", "must be 'route-anyway' or 'fail-503'"),
        ("routing: {overprovisioning: .inf}", "spec.routing.overprovisioning", "must be a finite number"),
    ],
)
def test_wrong_numbers_are_named_as_they_are_written(line: str, path: str, rule: str) -> None:
    head = "apiVersion: gir.dev/v1alpha1\nkind: RoutingPolicy\nmetadata: {name: x}\nspec:\n  "
    (problem,) = load(head + line + "\n").errors
    assert problem.path == path
    assert rule in problem.rule
