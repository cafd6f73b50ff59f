"""`gir bench picker`: its words, and when a missed limit is an exit code."""

import argparse
import json
from typing import Any

import pytest

from services.cli import bench
from services.cli.exit_codes import DONE, NO
from services.worlds import bench_picker
from services.worlds.bench_picker import PARTS, PickerBenchOptions
from services.worlds.bench_picker_figures import at_most

MACHINE = {"cpus": 2, "python": "3.11", "system": "Linux", "load_average": 0.1}


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench.add_parser(parser.add_subparsers())
    return parser.parse_args(["bench", "picker", *words])


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[PickerBenchOptions]:
    """Options of every run; what it measures is one limit missed and one kept."""
    asked: list[PickerBenchOptions] = []

    def run(options: PickerBenchOptions, _progress: object) -> dict[str, Any]:
        asked.append(options)
        figures = [at_most("cpu", 0.3, "cores", 0.25), at_most("age", 1.0, "ms", 2.0)]
        return {
            "bench": "picker",
            "machine": MACHINE,
            "figures": [figure.document() for figure in figures],
            "failed": {},
        }

    monkeypatch.setattr(bench_picker, "run", run)
    return asked


def test_a_missed_limit_is_said_and_is_an_exit_code_only_when_checked(
    measured: list[PickerBenchOptions], capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.run(parsed("--json")) == DONE
    printed = capsys.readouterr()
    assert json.loads(printed.out)["bench"] == "picker"
    assert "missed: cpu: 0.3 cores, limit 0.25" in printed.err
    assert bench.run(parsed("--check")) == NO
    assert "cpu" in capsys.readouterr().out
    assert [options.parts for options in measured] == [PARTS, PARTS]


def test_parts_and_minutes_are_passed_on(measured: list[PickerBenchOptions]) -> None:
    bench.run(parsed("--part", "memory", "--part", "picks", "--minutes", "10"))
    assert (measured[0].parts, measured[0].memory.minutes) == (["memory", "picks"], 10.0)


@pytest.mark.parametrize("words", [("--minutes", "0"), ("--minutes", "121"), ("--part", "luck")])
def test_wrong_words_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit):
        parsed(*words)
