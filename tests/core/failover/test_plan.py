"""A plan is a value with the defaults of an interactive, replayable request."""

from services.core.failover.plan import Plan, Replay
from services.core.inference import TrafficClass


def test_a_plan_names_targets_in_order_and_may_be_replayed_unless_said_otherwise() -> None:
    plan = Plan(("a", "b"), {"a": "eu-west", "b": "us-east"})
    assert list(plan.targets) == ["a", "b"]
    assert plan == Plan(
        ("a", "b"), {"a": "eu-west", "b": "us-east"}, TrafficClass.INTERACTIVE, False, Replay.ALWAYS
    )
    assert {replay.value for replay in Replay} == {"always", "before_body", "never"}
