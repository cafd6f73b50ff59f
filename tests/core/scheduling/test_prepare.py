"""Prepared snapshots: names, grants, and plans made once."""

import pytest

from services.core.inference import ModelName
from services.core.locality import Region
from services.core.policy import RoutingPolicy
from services.core.residency import ANYWHERE, ResidencyRule
from services.core.scheduling import prepare as prepare_module
from services.core.scheduling.prepare import prepare
from tests.core.scheduling.fleets import EU_ONLY, MODEL, cluster, fleet, request, snapshot


@pytest.mark.parametrize(
    ("asked", "grants", "resolved"),
    [
        ("llama", None, "llama"),
        ("chat", None, "chat"),
        ("nobody", None, None),
        ("llama", ["llama"], "llama"),
        ("chat", ["llama"], "chat"),
        ("chat", ["chat"], "chat"),
        ("llama", ["chat"], None),
        ("chat-latest", ["chat"], None),
        ("llama", ["mistral"], None),
        ("llama", [], None),
        ("nobody", ["nobody"], None),
    ],
)
def test_names_and_grants(asked: str, grants: list[str] | None, resolved: str | None) -> None:
    assert fleet(cluster("a")).resolve(request(model=asked, grants=grants)) == resolved


def test_without_a_policy_every_name_stands_for_itself_and_grants_still_bind() -> None:
    prepared = prepare(snapshot(cluster("a")), None)
    assert prepared.resolve(request(model="anything")) == "anything"
    assert prepared.resolve(request(model="anything", grants=["llama"])) is None
    assert (prepared.revision, prepared.conditions.routing) == (7, RoutingPolicy())


def test_a_plan_is_made_once_per_model_residency_and_band() -> None:
    prepared = fleet(cluster("a"))
    first = prepared.plan(MODEL, ANYWHERE, sheddable=False)
    assert prepared.plan(MODEL, ResidencyRule(), sheddable=False) is first
    assert prepared.plan(MODEL, EU_ONLY, sheddable=False) is not first
    assert prepared.plan(MODEL, ANYWHERE, sheddable=True) is not first
    assert prepared.plan(ModelName("mistral"), ANYWHERE, sheddable=False) is not first
    assert prepared.members(MODEL) is prepared.members(MODEL)


def test_no_client_can_fill_the_memory_with_residencies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_module, "PLANS_MAX", 3)
    prepared = fleet(cluster("a"))
    for number in range(10):
        rule = ResidencyRule(deny_regions=frozenset({Region(f"r{number}")}))
        assert prepared.plan(MODEL, rule, sheddable=False).refused_at is None
        assert len(prepared._plans) <= 3


def test_regions_and_revision_are_those_of_snapshot_and_policy() -> None:
    prepared = fleet(cluster("a"))
    assert prepared.regions == {"a": "eu-west"}
    assert (prepared.revision, prepared.snapshot.version) == (7, 42)


def test_every_name_of_a_model_has_one_canonical_name() -> None:
    prepared = fleet(cluster("a"))
    assert [prepared.canonical(ModelName(name)) for name in ("chat", "llama", "nobody")] == [
        "llama",
        "llama",
        "nobody",
    ]
    assert prepare(snapshot(cluster("a")), None).canonical(ModelName("chat")) == "chat"
