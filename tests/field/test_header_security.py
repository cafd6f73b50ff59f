"""Field cases of the category header-security: what a client may not say, and where messages end."""

import json
from pathlib import Path

from services.wire.http1.requests import Request
from tests.field.wires import BODY, ask, chunk, head, keep, playing, say, sized
from tests.global_router.rig import running, status

STEERING = (
    b"x-prefiller-host-port: 169.254.169.254:80",
    b"X-Prefiller-Url: http://internal/",
    b"x-data-parallel-host-port: 169.254.169.254:80",
    b"x-encoder-hosts-ports: 169.254.169.254:80",
    b"x-gateway-destination-endpoint: 169.254.169.254:80",
    b"x-gateway-destination-endpoint: 169.254.169.254:81",
    b"X-LLM-D-Inference-Objective: urgent",
    b"x-gir-hand-off: v1.a.b.c",
    b"x-gir-attempt: 7",
    b"x_gir_hand_off: v1.a.b.c",
    b"X_Gateway_Destination_Endpoint: 169.254.169.254:80",
)


async def test_f173_no_header_of_a_client_steers_a_gateway(tmp_path: Path) -> None:
    """Internal routing headers end at the edge in any case, repeated, and spelt with underscores."""
    async with running(tmp_path) as rig:
        seen: list[Request] = []
        rig.gateways["eu-a"].script = keep(seen)
        for extra in ((), (b"connection: keep-alive, x-other",)):
            assert (await ask(rig.router.http_port, head(*STEERING, *extra) + sized(BODY))).status == 200
        for request in seen:
            text = b"\n".join(b"%b: %b" % pair for pair in request.headers)
            assert b"169.254" not in text
            assert b"internal" not in text
            assert b"urgent" not in text
            assert request.header(b"x-gir-attempt") == b"1"
            assert b"v1.a.b.c" not in text
            assert not any(b"_" in name for name, _ in request.headers)


async def test_f175_no_field_of_a_body_moves_its_target_and_no_redirect_is_followed(tmp_path: Path) -> None:
    """Unknown fields pass as data; a 3xx goes to the client and its Location is asked for nothing."""
    async with running(tmp_path) as rig:
        base = f"http://127.0.0.1:{rig.gateways['us-a'].port}/"
        body = json.dumps(
            {
                "model": "llama",
                "api_base": base,
                "extra_body": {"base_url": base},
                "litellm_params": {"api_base": base},
            }
        ).encode()
        rig.gateways["eu-a"].script = status(307, ((b"location", base.encode()),))
        answer = await ask(rig.router.http_port, head() + sized(body))
        assert answer.status == 307
        assert [seen.body for seen in rig.gateways["eu-a"].seen] == [body]
        assert rig.gateways["us-a"].seen == []


async def test_f176_a_tenant_header_names_nobody(tmp_path: Path) -> None:
    """The token's tenant is served and recorded; without a token there is no tenant at all."""
    async with running(tmp_path) as rig:
        served = await ask(rig.router.http_port, head(b"x-tenant-id: victim") + sized(BODY))
        assert (served.status, rig.records()[0].tenant) == (200, "acme")
        unnamed = await ask(
            rig.router.http_port, head(b"x-tenant-id: victim", authorization="") + sized(BODY)
        )
        assert unnamed.status == 401
        assert len(rig.gateways["eu-a"].hand_offs) == 1
        assert rig.gateways["eu-a"].hand_offs[0].tenant == "acme"


async def test_f179_ambiguous_framing_is_400_and_closes(tmp_path: Path) -> None:
    """What two readers could split differently is refused whole: nothing of it reaches an upstream."""
    size = b"content-length: %d" % len(BODY)
    chunked = chunk(BODY) + b"0\r\n\r\n"
    smuggled = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n\r\n"
    ends = (
        size + b"\r\ntransfer-encoding: chunked\r\n\r\n" + chunked + smuggled,
        size + b"\r\ncontent-length: 1\r\n\r\n" + BODY,
        size + b"\r\n" + size + b"\r\n\r\n" + BODY,
        b"content-length: %d, %d\r\n\r\n" % (len(BODY), len(BODY)) + BODY,
        b"content-length: +%d\r\n\r\n" % len(BODY) + BODY,
        b"content-length:\r\n\r\n" + BODY,
        b"transfer-encoding: chunked\t\r\n\r\n" + chunked,
        b"transfer-encoding: \x0bchunked\r\n\r\n" + chunked,
        b"transfer-encoding : chunked\r\n\r\n" + chunked,
        b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n" + chunked,
        b"x: a\nx-b: c\r\n" + size + b"\r\n\r\n" + BODY,
        b"x: a\rx-b: c\r\n" + size + b"\r\n\r\n" + BODY,
        b"x: a\x00b\r\n" + size + b"\r\n\r\n" + BODY,
        b"x: a\r\n b\r\n" + size + b"\r\n\r\n" + BODY,
        b"transfer-encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\n" + chunked.replace(b"\r\n", b"\n"),
    )
    async with running(tmp_path) as rig:
        for end in ends:
            answer = await ask(rig.router.http_port, head() + end)
            assert (answer.status, answer.headers["connection"]) == (400, "close"), end
            assert json.loads(answer.body)["error"]["type"] == "invalid_request_error"
            assert answer.rest == b""
        assert not any(gateway.seen for gateway in rig.gateways.values())


async def test_f179_an_upstreams_ambiguous_answer_never_reaches_the_client(tmp_path: Path) -> None:
    """Heads that two readers could split differently fail the attempt; another cluster answers."""
    heads = (
        b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}!",
        b"x: a\nset-cookie: evil\r\ncontent-length: 2\r\n\r\n{}",
        b"x: a\rset-cookie: evil\r\ncontent-length: 2\r\n\r\n{}",
        b"content-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n\r\n",
    )
    for number, lines in enumerate(heads):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with (
            running(folder) as rig,
            playing(rig.gateways["eu-a"], say(b"HTTP/1.1 200 OK\r\n" + lines)),
        ):
            answer = await ask(rig.router.http_port, head() + sized(BODY))
            assert (answer.status, answer.headers["x-gir-cluster"]) == (200, "us-a")
            assert "set-cookie" not in answer.headers
            assert answer.rest == b""


async def test_f181_what_belongs_to_one_hop_or_to_the_caller_stays_there(tmp_path: Path) -> None:
    """Hop-by-hop and Connection-named headers, credentials and Host do not travel; Expect is answered here."""
    lines = (
        b"connection: x-foo, close, upgrade",
        b"x-foo: 1",
        b"keep-alive: timeout=5",
        b"proxy-authorization: Basic abc",
        b"proxy-connection: keep-alive",
        b"te: trailers",
        b"upgrade: h2c",
        b"cookie: session=1",
        b"expect: 100-continue",
        b"accept-encoding: gzip, br",
        b"x-kept: 1",
    )
    async with running(tmp_path) as rig:
        seen: list[Request] = []
        rig.gateways["eu-a"].script = keep(seen)
        answer = await ask(
            rig.router.http_port, head(*lines) + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
        )
        assert answer.status == 200
        names = {name for name, _ in seen[0].headers}
        assert names == {
            b"host",
            b"content-length",
            b"accept-encoding",
            b"x-kept",
            b"x-gir-hand-off",
            b"x-gir-request-id",
            b"x-gir-attempt",
        }
        assert seen[0].header(b"host") == f"127.0.0.1:{rig.gateways['eu-a'].port}".encode()
        assert seen[0].header(b"accept-encoding") == b"identity"
