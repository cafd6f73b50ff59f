"""Field cases of the category retries-fallback that the one life cycle of both inference paths must hold."""

import json
from pathlib import Path

import pytest

from services.adapters.http.responder import Responder
from services.wire.http1.requests import Request
from tests.field.wires import DONE, EVENT
from tests.global_router.rig import ANSWER, EU, EVENTS, US, answer, reset, running, status

THREE = {"eu-a": EU, "eu-b": EU, "us-a": US}
NO_CHAT = {"model": "llama", "prompt": "x"}


def sse(request: Request, responder: Responder) -> None:
    """Answer a stream as a model server does; the other form for requests that are no streams."""
    if json.loads(request.body).get("stream"):
        responder.respond(200, EVENTS, EVENT + DONE)
    else:
        responder.respond(200, [(b"content-type", b"application/json")], ANSWER)


async def test_f064_a_lost_body_is_sent_again_once_and_each_sending_is_recorded(tmp_path: Path) -> None:
    """The design allows it for inference: the body was read and no answer came, so another cluster gets it."""
    async with running(tmp_path) as rig:
        rig.gateways["eu-a"].script = reset
        assert (await rig.post()).status_code == 200
        assert [len(gateway.seen) for gateway in rig.gateways.values()] == [1, 1]
        assert [(a.cluster, a.outcome) for a in rig.records()[0].attempts] == [
            ("eu-a", "reset"),
            ("us-a", "answered"),
        ]


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_f067_every_path_and_form_fails_over_alike(path: str, streamed: bool, tmp_path: Path) -> None:
    """The same failing cluster costs no client anything, whatever it asked for."""
    async with running(tmp_path) as rig:
        rig.gateways["us-a"].script = sse
        for failing in (status(503), reset):
            rig.gateways["eu-a"].script = failing
            served = await rig.post({**NO_CHAT, "stream": streamed}, path=path)
            assert served.status_code == 200
            assert served.headers["x-gir-cluster"] == "us-a"
            assert served.headers["x-gir-attempts"] == "2"
            assert served.content == (EVENT + DONE if streamed else ANSWER)


async def test_f068_f079_every_failure_of_a_chain_counts_and_its_last_link_answers(tmp_path: Path) -> None:
    """A 429, B 503, C answers: each attempt has its own outcome, none is skipped or repeated."""
    async with running(tmp_path, THREE) as rig:
        rig.gateways["eu-a"].script = rig.gateways["eu-b"].script = status(429)
        served = await rig.post()
        assert (served.status_code, served.headers["x-gir-cluster"]) == (200, "us-a")
        attempts = rig.records()[0].attempts
        assert {a.cluster for a in attempts} == set(THREE)
        assert [a.outcome for a in attempts] == ["back_pressure", "back_pressure", "answered"]
        assert {name: len(gateway.seen) for name, gateway in rig.gateways.items()} == dict.fromkeys(THREE, 1)


@pytest.mark.parametrize("code", [400, 404, 422])
async def test_f073_a_refusal_of_the_model_server_is_not_retried(code: int, tmp_path: Path) -> None:
    """The case would try another target after 404; the design retries 5xx, 408, 425 and 429 alone."""
    async with running(tmp_path) as rig:
        rig.gateways["eu-a"].script = status(code)
        assert (await rig.post()).status_code == code
        assert rig.gateways["us-a"].seen == []


async def test_f074_every_5xx_and_408_425_429_is_retried(tmp_path: Path) -> None:
    """Unknown codes of the class included. A cluster whose turn it is answers between the failures."""
    async with running(tmp_path) as rig:
        for code in (500, 502, 503, 504, 507, 520, 529, 408, 425):
            rig.gateways["eu-a"].script = status(code)
            served = await rig.post()
            assert (served.status_code, served.headers["x-gir-cluster"]) == (200, "us-a"), code
            rig.gateways["eu-a"].script = answer
            for _ in range(5):  # Each request earns a fifth of a retry.
                assert (await rig.post()).headers["x-gir-cluster"] == "eu-a"


async def test_f077_an_outage_is_not_multiplied(tmp_path: Path) -> None:
    """With everything answering 503, upstreams see at most a fifth more than the clients sent, and 3."""
    async with running(tmp_path) as rig:
        for gateway in rig.gateways.values():
            gateway.script = status(503)
        calls = 60
        for _ in range(calls):
            assert (await rig.post()).status_code == 503
        assert sum(len(gateway.seen) for gateway in rig.gateways.values()) <= 1.2 * calls + 3
