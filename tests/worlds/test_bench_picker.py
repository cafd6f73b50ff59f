"""The whole benchmark's shape: parts in turn, failures told and not hidden, limits as complaints."""

import json
from dataclasses import replace

import pytest

from services.worlds import bench_picker as module
from services.worlds import bench_picker_picks
from services.worlds.bench_http import BenchError
from services.worlds.bench_picker import PARTS, PickerBenchOptions, missed, run
from services.worlds.bench_picker_figures import Figure, at_most
from services.worlds.bench_picker_picks import PickOptions
from services.worlds.bench_picker_prefix import PrefixOptions
from services.worlds.bench_picker_workloads import UNIFORM

SMALL = PickerBenchOptions(
    parts=("picks", "prefix", "sharing"),
    picks=PickOptions(pods=5, picks=20),
    prefix=PrefixOptions(pods=2, prompt_tokens=512, rounds=1),
    workloads=(replace(UNIFORM, seconds=1.0, rate=30.0, question_tokens=64),),
)


def test_the_result_is_one_json_object_of_the_parts_asked_for() -> None:
    result = json.loads(json.dumps(run(SMALL)))
    assert (result["bench"], result["failed"]) == ("picker", {})
    assert set(result["machine"]) == {"cpus", "python", "system", "load_average"}
    assert {figure["name"].partition(".")[0] for figure in result["figures"]} == {"pick", "prefix", "sharing"}
    for figure in result["figures"]:
        assert set(figure) == {"name", "value", "unit", "reference", "ratio", "held"}


def test_a_part_that_fails_is_named_and_the_others_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object) -> list[Figure]:
        raise BenchError("a pick was refused")

    monkeypatch.setattr(bench_picker_picks, "run", broken)
    lines: list[str] = []
    result = run(replace(SMALL, parts=("picks", "prefix")), lines.append)
    assert result["failed"] == {"picks": "a pick was refused"}
    assert {figure["name"].partition(".")[0] for figure in result["figures"]} == {"prefix"}
    assert "picks could not be measured: a pick was refused" in lines
    assert missed(result)[-1] == "picks: not measured: a pick was refused"


def test_every_part_is_one_that_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("picks", "prefix", "scrape", "sharing", "envoy", "memory"):
        part = getattr(module, f"bench_picker_{name}")
        monkeypatch.setattr(part, "run", lambda *_arguments, name=name: [Figure(name, 1.0, "s")])
    assert [figure["name"] for figure in run()["figures"]] == list(PARTS)


def test_missed_limits_are_named_with_value_and_limit() -> None:
    figures = [
        at_most("cpu", 0.3, "cores", 0.25),
        at_most("age", 1.0, "ms", 2.0),
        Figure("p50", 9.0, "ms", 1.0),
    ]
    result = {"figures": [figure.document() for figure in figures], "failed": {}}
    assert missed(result) == ["cpu: 0.3 cores, limit 0.25"]
