"""The HTTP door end to end: what is served, what is refused and how, what travels to the gateway."""

import asyncio
import json
from pathlib import Path

import pytest

from services.core.outcomes import DropReason
from tests.global_router.rig import ANSWER, EU, MODEL, US, bearer, running, status
from tests.support.wait import eventually


async def test_a_request_is_served_and_says_where(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        response = await rig.post(
            headers={"x-request-id": "mine-1", "x-gir-cluster": "spoofed", "traceparent": "t"}
        )
        assert response.status_code == 200
        assert response.content == ANSWER
        headers = response.headers
        assert headers["x-request-id"] == "mine-1"
        assert len(headers["x-gir-request-id"]) == 36
        assert headers["x-gir-cluster"] == "eu-a"
        assert headers["x-gir-region"] == "eu-west"
        assert headers["x-gir-jurisdiction"] == "eu"
        assert headers["x-gir-attempts"] == "1"
        assert float(headers["x-gir-decision-ms"]) > 0
        assert "x-gir-endpoint" not in headers
        gateway = rig.gateways["eu-a"]
        seen = gateway.seen[0]
        assert seen.header(b"authorization") is None
        assert seen.header(b"x-gir-cluster") is None
        assert seen.header(b"traceparent") == b"t"
        assert seen.header(b"x-gir-attempt") == b"1"
        assert seen.header(b"x-gir-request-id") == headers["x-gir-request-id"].encode()
        assert gateway.hand_offs[0].request_id == headers["x-gir-request-id"]
        assert gateway.hand_offs[0].tenant == "acme"
        record = rig.records()[0]
        assert (record.cluster, record.endpoint, record.status) == ("eu-a", "pod-1", 200)
        await eventually((tmp_path / "decisions.jsonl").exists, what="the decision file")
        line = json.loads((tmp_path / "decisions.jsonl").read_text().splitlines()[0])
        assert line["usage"]["total_tokens"] == 4
        assert line["attempts"][0]["outcome"] == "answered"


async def test_the_body_goes_on_byte_for_byte(tmp_path: Path) -> None:
    body = b'{ "unknown":1, "model" :"alias", "x":"\xc3\xa9" }'
    async with running(tmp_path) as rig:
        response = await rig.post(body, path="completions?api=1")
        assert response.status_code == 200
        assert rig.gateways["eu-a"].seen[0].body == body
        assert rig.gateways["eu-a"].seen[0].target == b"/v1/completions?api=1"


@pytest.mark.parametrize(
    ("body", "code", "http"),
    [
        (b"{", "invalid_json", 400),
        (b'{"model":7}', "invalid_value", 400),
        (b"{}", "missing_required_parameter", 400),
        (b'{"model":"nope"}', "model_not_found", 404),
    ],
)
async def test_bad_bodies_are_openai_errors(body: bytes, code: str, http: int, tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        response = await rig.post(body)
        assert response.status_code == http
        error = response.json()["error"]
        assert error["code"] == code
        assert error["message"]
        assert rig.gateways["eu-a"].seen == []


async def test_a_declared_model_that_no_cluster_serves_is_503_and_asks_nobody(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        response = await rig.post({"model": "other"})
        assert (response.status_code, response.json()["error"]["code"]) == (503, "no_healthy_cluster")
        assert [gateway.seen for gateway in rig.gateways.values()] == [[], []]


async def test_an_ungranted_model_looks_like_an_unknown_one(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        ungranted = await rig.post(tenant="narrow")
        unknown = await rig.post({"model": "nope"}, tenant="narrow")
        assert (ungranted.status_code, unknown.status_code) == (404, 404)
        assert (
            ungranted.json()["error"]["message"].replace(MODEL, "nope") == unknown.json()["error"]["message"]
        )


async def test_who_is_not_known_is_401_in_openais_form(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        for headers in ({}, {"authorization": "Bearer x"}, {"authorization": bearer("stranger")}):
            response = await rig.client.post("/v1/chat/completions", json={"model": MODEL}, headers=headers)
            assert response.status_code == 401
            assert response.json()["error"]["code"] == "invalid_api_key"
            assert response.headers["x-should-retry"] == "false"


async def test_a_foreign_door_refuses_and_an_unsatisfiable_rule_fails_closed(tmp_path: Path) -> None:
    async with running(tmp_path, {"us-a": US}) as rig:
        denied = await rig.post(tenant="us-only")
        assert denied.status_code == 403
        assert denied.json()["error"]["code"] == "jurisdiction_denied"
        header = await rig.post(headers={"x-gir-residency": "us"})
        assert header.status_code == 403
        closed = await rig.post(tenant="eu-only")
        assert closed.status_code == 503
        assert closed.json()["error"]["code"] == "residency_unsatisfiable"
        assert closed.headers["x-should-retry"] == "false"
        assert closed.headers["x-gir-request-id"]
        assert rig.gateways["us-a"].seen == []
        assert rig.router.life.tallies.rejected[DropReason.RESIDENCY_UNSATISFIABLE] == 1


async def test_a_malformed_control_header_is_400(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        response = await rig.post(headers={"x-gir-residency": "EU!"})
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "x-gir-residency"


async def test_models_are_policy_and_grants(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        for tenant, names in (("acme", [MODEL, "alias", "other"]), ("narrow", ["other"])):
            listed = await rig.client.get("/v1/models", headers={"authorization": bearer(tenant)})
            assert [model["id"] for model in listed.json()["data"]] == names
        assert (await rig.client.get("/openai/v1/models")).status_code == 401


async def test_other_paths_and_methods(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        unknown = await rig.client.get("/v2/nothing")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_url")
        wrong = await rig.client.get("/v1/chat/completions")
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")
        assert (await rig.client.get("/healthz")).status_code == 200
        assert (await rig.client.get("/readyz")).status_code == 200
        gzip = await rig.post(b"x", headers={"content-encoding": "gzip"})
        assert gzip.status_code == 415


async def test_an_oversized_body_is_413_before_it_is_read(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        response = await rig.post(b"x" * (11 << 20))
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "request_too_large"


async def test_a_foreign_tenant_is_refused_from_the_head(tmp_path: Path) -> None:
    """The body is never sent, so only a door that judges the head can answer."""
    async with running(tmp_path) as rig:
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.router.http_port)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: {bearer('us-only')}\r\n"
        writer.write(f"{head}content-length: 100000\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), 5)
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert b"jurisdiction_denied" in answer
        writer.close()


async def test_errors_of_the_model_server_pass_through(tmp_path: Path) -> None:
    async with running(tmp_path, {"eu-a": EU}) as rig:
        rig.gateways["eu-a"].script = status(422)
        response = await rig.post()
        assert response.status_code == 422
        assert response.json() == {"error": {"message": "no"}}
        assert response.headers["x-gir-cluster"] == "eu-a"


async def test_without_policy_the_router_is_not_ready(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.router.view.policy = None
        rig.router.authenticator.use(rig.policy.__class__(1, rig.policy.published_at_ms))
        response = await rig.post()
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "not_ready"
        assert (await rig.client.get("/readyz")).status_code == 503


async def test_a_connection_that_repeats_its_head_is_judged_each_time(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        for text in ("one", "two", "and three"):
            body = json.dumps({"model": MODEL, "messages": [text]}).encode()
            assert (await rig.post(body, headers={"x-request-id": "mine"})).headers["x-request-id"] == "mine"
            assert rig.gateways["eu-a"].seen[-1].body == body
        assert (await rig.post(tenant="narrow")).status_code == 404
        assert (await rig.post(tenant="narrow")).status_code == 404
        assert (await rig.post(headers={"x-request-id": "mine"})).status_code == 200
        ids = [record.request_id for record in rig.records()]
        assert len(set(ids)) == len(ids)
        tenants = [hand_off.tenant for gateway in rig.gateways.values() for hand_off in gateway.hand_offs]
        assert tenants == ["acme"] * 4
