"""The HTTP benchmark on a small number of requests: real processes, real sockets, no judgement of speed."""

import os
import sys

import pytest

from services.worlds.bench_http import BARE_RELAY, BenchError, BenchOptions, Subject, run, tree_cpu_s

SMALL = BenchOptions(requests=20, rounds=1, connections=(1, 2))


@pytest.mark.scenario
def test_target_and_peer_are_measured_on_one_upstream() -> None:
    lines: list[str] = []
    result = run(SMALL, against=Subject("peer", BARE_RELAY.command), progress=lines.append)
    assert result["bench"] == "http"
    assert result["machine"]["cpus"] == os.cpu_count()
    figures = {figure["name"]: figure for figure in result["figures"]}
    assert set(figures) == {
        f"{metric}.{kind}.c{connections}"
        for metric in ("cpu_ms", "p50_ms", "requests_per_s")
        for kind in ("json", "sse")
        for connections in (1, 2)
    }
    rate = figures["requests_per_s.sse.c2"]
    assert rate["unit"] == "1/s"
    assert rate["value"] > 0
    assert rate["ratio"] == pytest.approx(rate["value"] / rate["reference"], rel=0.01)
    assert len(lines) == 8


@pytest.mark.scenario
def test_a_target_alone_has_no_reference_and_events_can_be_paced() -> None:
    options = BenchOptions(requests=4, rounds=1, connections=(2,), paced=True)
    assert all(figure["reference"] is None and figure["ratio"] is None for figure in run(options)["figures"])


@pytest.mark.scenario
def test_headers_of_the_subject_are_sent() -> None:
    subject = Subject("relay", BARE_RELAY.command, headers=(("Authorization", "Bearer x"),))
    assert run(BenchOptions(requests=2, rounds=1, connections=(1,)), subject)["figures"]


@pytest.mark.scenario
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("/nonexistent/router --port {port}", "cannot be started"),
        (f"{sys.executable} -c 'raise SystemExit(3)'", "exited with status 3"),
    ],
)
def test_a_subject_that_does_not_come_up_is_named(command: str, message: str) -> None:
    with pytest.raises(BenchError, match=f"odd .*{message}"):
        run(SMALL, Subject("odd", command))


def test_cpu_of_this_process_grows() -> None:
    before = tree_cpu_s(os.getpid())
    while tree_cpu_s(os.getpid()) == before:
        sum(range(10_000))
    assert tree_cpu_s(os.getpid()) > before
