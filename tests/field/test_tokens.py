"""Field cases of the category jwt and of secrets in logs, against a router's door."""

import base64
import json
import logging
from pathlib import Path
from typing import Any

import jwt
import pytest

from services.adapters.system.clock import SystemClock
from tests.field.wires import BODY, ask, head, sized
from tests.global_router.rig import KEY, Rig, bearer, running


def claims(**changes: Any) -> dict[str, Any]:
    now = SystemClock().wall_ms() // 1000
    good = {"iss": "gir", "aud": "gir", "sub": "acme", "jti": "j", "iat": now, "exp": now + 600}
    return {name: value for name, value in {**good, **changes}.items() if value is not ...}


def signed(payload: dict[str, Any], header: dict[str, Any] | None = None) -> str:
    """Sign anything at all with the region's key: a reader must not lean on what a minter would write."""

    def part(value: bytes) -> bytes:
        return base64.urlsafe_b64encode(value).rstrip(b"=")

    top = {"alg": "EdDSA", "typ": "JWT", "kid": KEY.kid, **(header or {})}
    text = part(json.dumps(top).encode()) + b"." + part(json.dumps(payload).encode())
    return "Bearer " + (text + b"." + part(KEY.private.sign(text))).decode()


def files_under(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


async def codes(rig: Rig, *tokens: str) -> set[int]:
    found = set()
    for token in tokens:
        answer = await ask(rig.router.http_port, head(authorization=token) + sized(BODY))
        found.add(answer.status)
        if answer.status != 200:
            assert json.loads(answer.body)["error"]["code"] == "invalid_api_key"
    return found


async def test_f118_f127_issuer_and_audience_are_exact(tmp_path: Path) -> None:
    """Any substring, list or other type of issuer is 401; of audiences any one that fits is enough."""
    async with running(tmp_path) as rig:
        assert await codes(rig, signed(claims()), signed(claims(aud=["x", "gir"]))) == {200}
        issuers = ("gi", "gir/", "", ["gir"], None, 42, ...)
        audiences: tuple[Any, ...] = ("router", [], {}, 42, None, ...)
        assert await codes(rig, *(signed(claims(iss=value)) for value in issuers)) == {401}
        assert await codes(rig, *(signed(claims(aud=value)) for value in audiences)) == {401}


async def test_f119_clocks_that_differ_a_little_are_forgiven(tmp_path: Path) -> None:
    """Two seconds either way pass, an hour does not."""
    now = SystemClock().wall_ms() // 1000
    async with running(tmp_path) as rig:
        near = (claims(iat=now + 2, exp=now + 600), claims(nbf=now + 2), claims(iat=now - 60, exp=now - 2))
        far = (claims(iat=now + 3600, exp=now + 7200), claims(nbf=now + 3600), claims(exp=now - 3600))
        assert await codes(rig, *map(signed, near)) == {200}
        assert await codes(rig, *map(signed, far)) == {401}


async def test_f122_f124_f125_headers_choose_no_key_and_no_rule(tmp_path: Path) -> None:
    """Critical extensions, foreign algorithms, key locations and odd key ids are 401 and never 500."""
    headers: tuple[dict[str, Any], ...] = (
        {"crit": ["urn:x"]},
        {"crit": []},
        {"crit": "b64"},
        {"b64": False, "crit": ["b64"]},
        {"alg": "none"},
        {"alg": "HS256"},
        {"alg": ["EdDSA"]},
        {"alg": 5},
        {"kid": "../../dev/null"},
        {"kid": "'; drop"},
        {"kid": "k" * 5000},
        {"kid": 42},
        {"kid": None},
        {"kid": {}},
    )
    async with running(tmp_path) as rig:
        assert await codes(rig, *(signed(claims(), each) for each in headers)) == {401}
        pointed = {
            "jku": "http://169.254.169.254/",
            "x5u": "file:///etc/passwd",
            "jwk": {"kty": "oct", "k": "AA"},
        }
        stranger = jwt.encode(claims(), "k" * 32, algorithm="HS256", headers={"kid": KEY.kid, **pointed})
        assert await codes(rig, f"Bearer {stranger}") == {401}


async def test_f128_times_of_any_type_are_401_and_never_500(tmp_path: Path) -> None:
    """Infinite, huge, boolean, textual and absent times are no times."""
    odd = (float("inf"), float("-inf"), float("nan"), "soon", True, None, 2**70, -(2**70), 1.5e300, ...)
    async with running(tmp_path) as rig:
        for name in ("exp", "iat"):
            assert await codes(rig, *(signed(claims(**{name: value})) for value in odd)) == {401}
        no_nbf = (value for value in odd if value not in (..., -(2**70)))
        assert await codes(rig, *(signed(claims(nbf=value)) for value in no_nbf)) == {401}


async def test_f130_oversized_tokens_are_refused_quickly_and_in_json(tmp_path: Path) -> None:
    """Above 8 KiB a token is 401; above the head's limit the head is 431."""
    async with running(tmp_path) as rig:
        for size, status in ((9, 401), (15, 401), (31, 401), (64, 431), (1024, 431)):
            answer = await ask(
                rig.router.http_port, head(authorization="Bearer " + "a" * (size << 10)) + sized(BODY)
            )
            assert answer.status == status
            assert json.loads(answer.body)["error"]["type"] == "invalid_request_error"


async def test_two_identities_are_none(tmp_path: Path) -> None:
    """Two Authorization lines are no choice between the two, in whichever order they stand."""
    async with running(tmp_path) as rig:
        for second in (bearer("eu-only"), "Bearer nobody", bearer()):
            answer = await ask(rig.router.http_port, head(b"authorization: " + second.encode()) + sized(BODY))
            assert answer.status == 401


async def test_f187_no_secret_reaches_a_log_an_answer_or_a_metric(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is wrong with a credential, nothing that is said about it holds a part of it."""
    canary = "tok-CANARY-123"
    with caplog.at_level(logging.DEBUG):
        async with running(tmp_path) as rig:
            port = rig.router.http_port
            said = b""
            for credential in (f"Bearer {canary}", canary, f"Basic {canary}", f"{bearer()}{canary}"):
                said += (await ask(port, head(authorization=credential) + sized(BODY))).body
            target = b"/v1/chat/completions?api_key=" + canary.encode()
            said += (await ask(port, head(target=target, authorization="") + sized(BODY))).body
            said += (await rig.client.get(f"http://127.0.0.1:{rig.router.metrics_port}/metrics")).content
    for text in (said, caplog.text.encode(), *files_under(tmp_path)):
        assert canary[:8].encode() not in text
