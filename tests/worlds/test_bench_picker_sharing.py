"""The virtual world: every request is served, repeatably, and a profile that piles up is reported as such."""

from dataclasses import replace

import pytest

from services.core.scheduling.baselines import STRATEGIES
from services.core.scheduling.profile import Picker, SchedulingProfile, Weighted, endpoint_profile
from services.core.scheduling.scorers.load import TokenLoad
from services.worlds.bench_http import BenchError
from services.worlds.bench_picker_sharing import PODS, Outcome, World, figures_of, run
from services.worlds.bench_picker_workloads import SHARED, UNIFORM

SMALL = replace(SHARED, rate=40.0, seconds=3.0, opening_tokens=512, conversations=60, turns=3)


def test_two_runs_are_equal_and_every_counted_request_got_its_first_token() -> None:
    first, again = (World(SMALL, STRATEGIES["prefix-aware"]).run() for _ in range(2))
    assert first == again
    assert first.requests > 60
    assert 0 < first.ttft_p50_ms <= first.ttft_p99_ms
    assert 0 < first.hit_rate < 1
    assert first.load >= 1


def test_the_prefix_aware_profile_finds_more_in_caches_than_least_outstanding() -> None:
    ours, least = (World(SMALL, STRATEGIES[name]).run() for name in ("prefix-aware", "least-outstanding"))
    assert ours.hit_rate > least.hit_rate


def test_a_profile_that_sends_all_to_one_pod_is_seen_as_that() -> None:
    class First(TokenLoad):
        """Every score is that of the first endpoint alone."""

        def over(self, endpoints):  # type: ignore[no-untyped-def]  # the shape of the class it stands for
            return [1.0] + [0.0] * (len(endpoints) - 1)

    piled: SchedulingProfile = endpoint_profile(Picker.MAX_SCORE, (Weighted(First()),))
    workload = replace(UNIFORM, rate=20.0, seconds=2.0, question_tokens=64)
    outcome = World(workload, piled).run()
    assert outcome.load == outcome.outstanding == PODS


def test_figures_hold_the_limits_that_fit_the_workload() -> None:
    ours = Outcome(100, 1.4, 1.2, 20.0, 90.0, 0.7)
    least = Outcome(100, 1.1, 1.0, 25.0, 100.0, 0.5)
    outcomes = {"prefix-aware": ours, "least-outstanding": least}
    held = {figure.name: figure.held for figure in figures_of(SHARED, outcomes) if figure.held is not None}
    assert held == {
        "sharing.shared.load": False,
        "sharing.shared.outstanding": True,
        "sharing.shared.ttft_p99_ratio": True,
        "sharing.shared.hit_gain": True,
    }
    uniform = {figure.name: figure for figure in figures_of(UNIFORM, outcomes)}
    assert uniform["sharing.uniform.ttft_p99_ratio"].held is None
    assert "sharing.uniform.hit_gain" not in uniform
    assert uniform["sharing.uniform.least-outstanding.ttft_p99"].reference == 100.0


def test_every_workload_is_played_with_every_strategy() -> None:
    lines: list[str] = []
    figures = run(lines.append, (replace(SMALL, seconds=1.5),))
    assert len(lines) == len(STRATEGIES)
    names = {figure.name for figure in figures}
    assert {f"sharing.shared.{name}.hit_rate" for name in STRATEGIES} <= names


def test_a_world_whose_picker_refuses_is_not_measured() -> None:
    world = World(SMALL, STRATEGIES["random"])
    for pod in world.table:
        pod.draining = True
        world.table.tick(world.arrivals.start)
    with pytest.raises(BenchError, match="refused in virtual time"):
        world.run()
