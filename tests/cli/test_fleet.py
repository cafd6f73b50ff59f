import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from services.cli.fleet import Fleet, doubts
from services.cli.main import main
from services.wire.gen.gir.v1 import health_pb2, pods_pb2, routing_pb2, routing_pb2_grpc
from services.worlds.topology_ports import HostPorts

FLEET = routing_pb2.WatchFleetResponse(
    fleet_version=7,
    policy_revision=3,
    region="eu-west",
    jurisdiction="eu",
    bus_suspected=True,
    ready=True,
    clusters=[
        routing_pb2.ClusterStatus(
            cluster="eu-1",
            region="eu-west",
            jurisdiction="eu",
            state=routing_pb2.HEALTH_STATE_STALE,
            ejected=True,
            ramp=0.5,
            silence_ms=1300,
            pools=[
                health_pb2.PoolReport(pool="p", model=name, ready_endpoints=2, total_endpoints=3, running=4)
                for name in ("m1", "one")
            ],
        )
    ],
)
PODS = pods_pb2.PodsReport(
    cluster="eu-1",
    pool="p",
    epoch=1,
    sequence=1,
    pods=[pods_pb2.PodRecord(id="pod-0", address="127.0.0.1:8100", state=pods_pb2.POD_STATE_READY)],
)


class Router(routing_pb2_grpc.GlobalRouterServicer):
    """A router that knows one cluster and one token."""

    def WatchFleet(  # noqa: N802 -- the proto's name
        self, request: routing_pb2.WatchFleetRequest, context: Any
    ) -> Iterator[routing_pb2.WatchFleetResponse]:
        if dict(context.invocation_metadata()).get("authorization") != "Bearer good":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "token refused: malformed")
        answer = routing_pb2.WatchFleetResponse()
        answer.CopyFrom(FLEET)
        if request.include_pods:
            answer.pods.append(PODS)
        yield answer
        answer.fleet_version = 8
        yield answer


@pytest.fixture
def router() -> Iterator[str]:
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        routing_pb2_grpc.add_GlobalRouterServicer_to_server(Router(), server)  # type: ignore[abstract]  # the verb asks nothing else
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(None).wait()


def test_the_fleet_is_shown_once_as_a_table(router: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "--router", router, "--token", "good", "--pods"]) == 0
    shown = capsys.readouterr().out
    for word in ("eu-1", "stale ejected", "2/3", "1300", "50%", "pod-0", "READY", "the bus is suspected"):
        assert word in shown
    assert "policy revision 3, snapshot 7" in shown


def test_doubts_stand_above_the_table(router: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "--router", router, "--token", "good"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("the bus is suspected")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Fleet(ready=True), []),
        (Fleet(ready=True, bus_suspected=True), ["the bus is suspected"]),
        (Fleet(isolated=True), ["the router is isolated", "the router is not ready"]),
        (Fleet(), ["the router is not ready"]),
    ],
)
def test_doubts_are_one_line_and_nothing_when_all_is_well(answer: Fleet, words: list[str]) -> None:
    lines = doubts(answer)
    assert len(lines) == (1 if words else 0)
    assert [part.split(":")[0] for line in lines for part in line.split("; ")] == words


def test_the_fleet_is_shown_as_a_document(router: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "--router", router, "--token", "good", "--output", "json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    fleet = json.loads(line)
    assert (fleet["region"], fleet["fleet_version"], fleet["bus_suspected"]) == ("eu-west", 7, True)
    assert (fleet["isolated"], fleet["ready"]) == (False, True)
    (cluster,) = fleet["clusters"]
    assert (cluster["state"], cluster["silence_ms"], cluster["pools"][0]["waiting"]) == ("stale", 1300, None)
    assert cluster["pools"][0]["running"] == 4
    assert "pods" not in fleet


def test_watching_shows_every_change_and_says_when_the_router_ends_it(
    router: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIR_TOKEN", "good")
    assert main(["fleet", "--router", router, "--watch", "--pods", "--output", "json"]) == 3
    told = capsys.readouterr()
    answers = [json.loads(line) for line in told.out.splitlines()]
    assert [answer["fleet_version"] for answer in answers] == [7, 8]
    assert answers[0]["pods"][0]["id"] == "pod-0"
    assert "ended the stream" in told.err


def test_a_refused_token_is_exit_code_1(router: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "--router", router, "--token", "bad"]) == 1
    assert "token refused" in capsys.readouterr().err


def test_a_router_that_cannot_be_reached_is_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    address = f"127.0.0.1:{HostPorts().next_free(27_000)}"
    assert main(["fleet", "--router", address, "--token", "good"]) == 3
    assert address in capsys.readouterr().err


@pytest.mark.parametrize("token", ["", "two\nlines"])
def test_without_a_usable_token_nobody_is_asked(
    token: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GIR_TOKEN", raising=False)
    assert main(["fleet", "--token", token]) == 2
    assert "a token is needed" in capsys.readouterr().err


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(SystemExit) as left:
        main(["fleet", "--router", "nowhere", "--token", "good"])
    assert left.value.code == 2
