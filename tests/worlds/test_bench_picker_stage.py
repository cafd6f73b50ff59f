"""Processes of the benchmark: they say where they are, end with their context, and tell why they failed."""

import sys
from pathlib import Path

import pytest

from services.worlds import bench_picker_stage as module
from services.worlds.bench_http import BenchError
from services.worlds.bench_picker_load import RequestShape
from services.worlds.bench_picker_stage import MODEL, load, part, picker, pods


def test_a_picker_is_ready_when_all_its_pods_are_and_both_end_with_their_context() -> None:
    with pods(2) as simulated, picker(simulated.ready["ports"], scrape={"interval_ms": 50}) as subject:
        pids = (simulated.pid, subject.pid)
        assert len(set(simulated.ready["ports"])) == 2
        assert set(subject.ready) == {"grpc", "http", "metrics"}
        assert subject.ask({})["scrapes"]["ok"] >= 2
        assert subject.cpu_s() > 0
        assert 10 < subject.rss_mib() < 2_000
        assert simulated.ask({"pod": 1, "configure": {"metrics": "hang"}}) == {}
        # The gateway's own door serves too, so the generator can be tried without Envoy.
        figures = load(subject.ready["http"], RequestShape(MODEL, output_tokens=2), 200.0, 10)
    assert (figures["answered"], figures["faults"]) == (9, 0)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_process_that_cannot_start_tells_why() -> None:
    with (
        pytest.raises(BenchError, match=r"pods exited with status 1: .*page_lines"),
        pods(1, page_lines=-1),
    ):
        pass


def test_a_process_that_ended_is_not_asked() -> None:
    with part("pods", ("pods", "--count", "0", "--settings", "{}")) as running:
        running._process.terminate()
        running._process.wait()
        with pytest.raises(BenchError, match="pods"):
            running.ask({"pod": 0})
        with pytest.raises(BenchError, match="no memory any more"):
            running.rss_mib()


def test_a_process_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.0)
    with pytest.raises(BenchError, match="pods said nothing"), pods(1):
        pass


def test_a_generator_that_fails_or_never_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(module, "LOAD", (sys.executable, "-c", "raise SystemExit('no memory')"))
        with pytest.raises(BenchError, match="the load generator failed: no memory"):
            load(1, RequestShape(MODEL), 100.0, 1)
    monkeypatch.setattr(module, "_LOAD_GRACE_S", 0.0)
    with pytest.raises(BenchError, match="did not end in time"):
        load(1, RequestShape(MODEL), 1_000.0, 1)
