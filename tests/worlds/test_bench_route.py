"""The benchmark's shape: every figure is there with its reference; its sizes are not judged here."""

from services.core.outcomes import Routed
from services.core.scheduling.decide import decide
from services.core.units import Instant
from services.worlds.bench_route import RULES, RouteBenchOptions, fleet_of, requests_of, run
from services.worlds.bench_route_grpc import GrpcBenchOptions


def test_every_figure_has_a_reference_of_the_same_run() -> None:
    lines: list[str] = []
    grpc = GrpcBenchOptions(rounds=1, calls=40, messages=80)
    result = run(RouteBenchOptions(sizes=(5, 40), rounds=2, decisions=20, calls=3, grpc=grpc), lines.append)
    assert result["bench"] == "route"
    assert [(figure["name"], figure["unit"]) for figure in result["figures"]] == [
        ("decide.5", "us"),
        ("decide.40", "us"),
        ("decide.growth", "us"),
        ("Route", "1/s"),
        ("RouteStream", "1/s"),
    ]
    for figure in result["figures"]:
        assert figure["value"] > 0
        assert figure["reference"] > 0
        assert figure["ratio"] > 0
    assert lines == ["round 1 of 2", "round 2 of 2", "gRPC round 1 of 1"]


def test_the_measured_requests_are_all_routed_and_half_are_confined() -> None:
    prepared = fleet_of(20)
    requests = requests_of(40)
    decisions = [decide(prepared, request, Instant(0)) for request in requests]
    assert all(isinstance(decision, Routed) and len(decision.fallbacks) == 4 for decision in decisions)
    assert sum(request.residency is RULES[1] for request in requests) == 20
