"""What the running services refuse: each a status and an OpenAI-form error, at the door and at a gateway."""

import base64
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from services.adapters.auth.key_files import create_signing_key, parse_hand_off_keys, read_private
from services.adapters.auth.tokens import TokenScope, mint
from services.adapters.system.clock import SystemClock
from services.core.inference import ModelName, RequestId, TenantId
from services.core.locality import ClusterId
from services.core.residency import ANYWHERE
from services.core.units import WallMs
from services.wire.hand_off import HandOff, derive_key, sign
from tests.scenarios.processes.fleet import ProcessFleet
from tests.scenarios.processes.plan import EU, SMALL, TENANT

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(240)]

CLOCK = SystemClock()
HOUR_MS = 3_600_000
BODY: Mapping[str, object] = {
    "model": SMALL,
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 2,
}


@pytest.fixture
def door(fleet: ProcessFleet) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=f"http://127.0.0.1:{fleet.door(EU)}/v1", trust_env=False, timeout=30
    ) as client:
        yield client


@pytest.fixture
def gateway(fleet: ProcessFleet) -> Iterator[httpx.Client]:
    port = fleet.plan.cluster("eu-west-1").gateway.http
    with httpx.Client(base_url=f"http://127.0.0.1:{port}/v1", trust_env=False, timeout=30) as client:
        yield client


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error object, once its form is proved."""
    error: dict[str, Any] = response.json()["error"]
    assert error.keys() >= {"message", "type", "param", "code"}
    assert len(error["message"]) > 10
    assert "Traceback" not in response.text
    return error


def post(client: httpx.Client, token: str | None, headers: Mapping[str, str] | None = None) -> httpx.Response:
    authorization = {} if token is None else {"authorization": f"Bearer {token}"}
    return client.post("/chat/completions", json=BODY, headers={**authorization, **(headers or {})})


def signed(fleet: ProcessFleet, issued_at_ms: int, kid: str, *, own: bool = True) -> str:
    key = fleet.keys.signing_key()
    if not own:
        folder = fleet.root / f"foreign-{secrets.token_hex(4)}"
        key = create_signing_key(folder, kid)
    return mint(TokenScope(TenantId(TENANT)), kid, key.private, WallMs(issued_at_ms), 3600, "token-id")


def test_a_bad_token_is_refused_at_the_door(fleet: ProcessFleet, door: httpx.Client) -> None:
    """Missing, garbage, expired two hours ago, signed by a foreign key (same and other key id), cut short."""
    now = CLOCK.wall_ms()
    own_kid = fleet.keys.signing_key().kid
    tokens = {
        "missing": None,
        "garbage": "garbage",
        "expired": signed(fleet, now - 2 * HOUR_MS, own_kid),
        "foreign": signed(fleet, now, own_kid, own=False),
        "unknown key": signed(fleet, now, "nobody", own=False),
        "cut short": fleet.token[:-3],
    }
    for what, token in tokens.items():
        response = post(door, token)
        assert response.status_code == 401, what
        error = error_of(response)
        assert error["code"] == "invalid_api_key", what
        assert token is None or token not in error["message"], what
    assert post(door, signed(fleet, now, own_kid)).status_code == 200


def test_a_clients_token_does_not_open_a_gateway(fleet: ProcessFleet, gateway: httpx.Client) -> None:
    """The client's token stops at the router; a gateway wants a hand-off, and not as a bearer token."""
    assert error_of(response := post(gateway, fleet.token))["type"], response.text
    assert response.status_code == 401
    assert post(gateway, None).status_code == 401
    assert post(gateway, None, {"x-gir-hand-off": fleet.token}).status_code == 401
    assert post(gateway, hand_off(fleet, "eu-west-1")).status_code == 401


def hand_off(fleet: ProcessFleet, cluster: str, *, key_of: str = "", lifetime_ms: int = 30_000) -> str:
    """A hand-off as the first region's router signs it for `cluster`, with the key of `key_of` if it is given."""
    file = fleet.keys.region_secret(EU)
    kid, secret = next(iter(parse_hand_off_keys(read_private(file).decode(), str(file)).items()))
    content = HandOff(
        ClusterId(cluster),
        RequestId("018f0000-0000-7000-8000-000000000000"),
        TenantId(TENANT),
        ModelName(SMALL),
        ANYWHERE,
        WallMs(CLOCK.wall_ms() + lifetime_ms),
    )
    return sign(content, derive_key(kid, secret, ClusterId(key_of or cluster)))


def test_a_hand_off_opens_its_own_cluster_only(fleet: ProcessFleet, gateway: httpx.Client) -> None:
    """For another cluster, with another cluster's key, expired, with one character changed: refused."""
    good = hand_off(fleet, "eu-west-1")
    assert post(gateway, None, {"x-gir-hand-off": good}).status_code == 200
    payload = good.split(".")[2]
    forged = base64.urlsafe_b64encode(
        base64.urlsafe_b64decode(payload).replace(TENANT.encode(), TENANT[::-1].encode())
    ).decode()
    refused = {
        "for another cluster": hand_off(fleet, "us-east-1"),
        "for another cluster with this one's key": hand_off(fleet, "us-east-1", key_of="eu-west-1"),
        "with another cluster's key": hand_off(fleet, "eu-west-1", key_of="us-east-1"),
        "expired": hand_off(fleet, "eu-west-1", lifetime_ms=-120_000),
        "for another tenant": good.replace(payload, forged),
    }
    for what, token in refused.items():
        response = post(gateway, None, {"x-gir-hand-off": token})
        assert response.status_code == 401, what
        assert token not in error_of(response)["message"]


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b'{"model":"nobody","messages":[]}', 404, None),
        (b'{"messages":[]}', 400, "model"),
        (b'{"model":7,"messages":[]}', 400, "model"),
        (b'{"model":', 400, None),
        (b"\xff\xfe", 400, None),
        (b"", 400, None),
        (b" " * ((10 << 20) + 1), 413, None),
    ],
    ids=["unknown model", "no model", "model a number", "broken JSON", "not UTF-8", "empty", "too large"],
)
def test_a_bad_body_is_refused_at_the_door(
    fleet: ProcessFleet, door: httpx.Client, body: bytes, status: int, param: str | None
) -> None:
    response = door.post(
        "/chat/completions", content=body, headers={"authorization": f"Bearer {fleet.token}"}
    )
    assert response.status_code == status
    assert error_of(response)["param"] == param
    assert post(door, fleet.token).status_code == 200, "the door goes on"
