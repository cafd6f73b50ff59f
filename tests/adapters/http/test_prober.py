"""The prober: 200 within the time limit is good, everything else is a failed probe and no exception."""

from collections.abc import AsyncIterator

import pytest

from services.adapters.http.prober import ANSWER_MAX_BYTES, HttpProber
from services.adapters.http.responder import Responder
from services.adapters.http.server import HttpServer
from services.adapters.system.clock import SystemClock
from services.core.locality import ClusterId
from services.core.units import ms, seconds
from services.wire.http1.requests import Request

EU_A = ClusterId("eu-a")


def answer(request: Request, responder: Responder) -> None:
    path = request.path
    if path == b"/hang":
        return
    if path == b"/endless":
        responder.respond(200, (), b"x" * (ANSWER_MAX_BYTES + 1))
    elif path == b"/moved":
        responder.respond(302, [(b"location", b"/readyz")])
    else:
        responder.respond(200 if path == b"/readyz" else 503, (), b"{}")


@pytest.fixture
async def url() -> AsyncIterator[str]:
    server = HttpServer(answer)
    port = await server.listen("127.0.0.1", 0)
    yield f"http://127.0.0.1:{port}"
    await server.close()


@pytest.fixture
async def prober() -> AsyncIterator[HttpProber]:
    prober = HttpProber(SystemClock())
    yield prober
    await prober.close()


async def test_a_ready_cluster_is_ok_and_its_round_trip_measured(url: str, prober: HttpProber) -> None:
    for _ in range(3):
        result = await prober.probe(EU_A, f"{url}/readyz", seconds(5))
        assert result.ok
        assert result.cluster == EU_A
        assert 0 < result.rtt < seconds(5)


@pytest.mark.parametrize(
    ("path", "detail"), [("/not", "status 503"), ("/moved", "status 302"), ("/endless", "answer too large")]
)
async def test_any_other_answer_is_a_failed_probe(
    path: str, detail: str, url: str, prober: HttpProber
) -> None:
    result = await prober.probe(EU_A, url + path, seconds(5))
    assert not result.ok
    assert result.detail == detail


async def test_a_hanging_cluster_fails_at_the_time_limit(url: str, prober: HttpProber) -> None:
    result = await prober.probe(EU_A, f"{url}/hang", ms(50))
    assert not result.ok
    assert result.detail == "TimeoutError"


@pytest.mark.parametrize("bad", ["http://127.0.0.1:1/readyz", "http://[bad", "ftp://127.0.0.1/"])
async def test_an_unreachable_or_impossible_url_is_a_failed_probe(bad: str, prober: HttpProber) -> None:
    assert not (await prober.probe(EU_A, bad, seconds(5))).ok
