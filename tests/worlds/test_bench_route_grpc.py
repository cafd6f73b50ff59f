"""The gRPC benchmark fails in one sentence when a subject refuses or is not there."""

from pathlib import Path

import pytest

from services.worlds import bench_route_grpc
from services.worlds.bench_http import BenchError, Subject
from services.worlds.bench_route_grpc import GrpcBenchOptions, run

SMALL = GrpcBenchOptions(rounds=1, calls=2, messages=2)


def test_a_router_that_does_not_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_folder: Path, _model: str, clusters: int) -> Subject:
        assert clusters == bench_route_grpc.CLUSTERS
        return Subject("gir router", "false --port {port} --upstream-port {upstream_port}")

    monkeypatch.setattr(bench_route_grpc, "router_subject", broken)
    with pytest.raises(BenchError, match="gir router did not answer a Route call"):
        run(SMALL, lambda _line: None)
