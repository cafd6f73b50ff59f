"""Field cases of the category request-body, and those of model names that a body can carry."""

import gzip
import json
from pathlib import Path

from tests.field.wires import BODY, ask, head, sized
from tests.global_router.rig import running

JSON = "application/json"


MALFORMED = (
    (b'{"model":', None),
    (b"[]", None),
    (b"", None),
    (b"\xff\xfe\x00", None),
    (BODY.decode().encode("utf-16"), None),
    (b'{"model":"llama","x":"\xff"}', None),
    (b'{"model":"llama","x":%b}' % (b"[" * 5000 + b"]" * 5000), None),
    (b'{"messages":[]}', "model"),
    (b'{"model":42}', "model"),
    (b'{"model":null}', "model"),
    (b'{"model":""}', "model"),
    (b'{"model":{}}', "model"),
    (b'{"model":"llama","model":"other"}', "model"),
    (b'{"model":"llama","mod\\u0065l":"other"}', "model"),
)


async def test_f032_malformed_bodies_are_400_in_openais_form(tmp_path: Path) -> None:
    """400 with type invalid_request_error for each; what a model server requires beyond a model is its to judge."""
    async with running(tmp_path) as rig:
        for body, param in MALFORMED:
            answer = await ask(rig.router.http_port, head() + sized(body))
            assert (answer.status, answer.headers["content-type"]) == (400, JSON)
            error = json.loads(answer.body)["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert (error["type"], error["param"]) == ("invalid_request_error", param)
        assert not any(gateway.seen for gateway in rig.gateways.values())


async def test_f034_f035_a_compressed_body_is_415_whatever_it_holds(tmp_path: Path) -> None:
    """The design answers every coding alike: 415 before the body is looked at, however small or large it inflates."""
    bomb = gzip.compress(bytes(8 << 20))
    async with running(tmp_path) as rig:
        for coding in (b"gzip", b"deflate", b"br", b"zstd", b"gzip, gzip", b"bogus"):
            for body in (gzip.compress(BODY), BODY, gzip.compress(BODY)[:-5], bomb):
                answer = await ask(rig.router.http_port, head(b"content-encoding: " + coding) + sized(body))
                assert (answer.status, json.loads(answer.body)["error"]["code"]) == (
                    415,
                    "unsupported_content_encoding",
                )
        assert not any(gateway.seen for gateway in rig.gateways.values())


async def test_f037_the_limit_of_a_body_is_exact_and_above_it_is_413(tmp_path: Path) -> None:
    """Up to the limit a body is served, one byte more is 413 with an OpenAI body."""
    limit = 10 << 20
    async with running(tmp_path) as rig:
        codes = []
        for size in (limit - 1, limit, limit + 1):
            body = BODY[:-1] + b',"x":"' + b"a" * (size - len(BODY) - 8 + 1) + b'"}'
            assert len(body) == size
            answer = await ask(rig.router.http_port, head() + sized(body))
            codes.append((answer.status, json.loads(answer.body).get("error", {}).get("code")))
        assert codes == [(200, None), (200, None), (413, "request_too_large")]
        assert [len(seen.body) for seen in rig.gateways["eu-a"].seen] == [limit - 1, limit]


async def test_f038_no_post_is_ever_redirected(tmp_path: Path) -> None:
    """Served in place or a JSON 404, no 3xx and no Location."""
    targets = {
        b"/v1/chat/completions/": 404,
        b"//v1/chat/completions": 404,
        b"/api/v1/chat/completions": 404,
        b"/v1/chat/completions?x=1": 200,
        b"http://elsewhere.example/v1/chat/completions": 200,
    }
    async with running(tmp_path) as rig:
        for target, status in targets.items():
            answer = await ask(rig.router.http_port, head(target=target) + sized(BODY))
            assert answer.status == status
            assert "location" not in answer.headers
            assert json.loads(answer.body)


async def test_f040_the_label_of_a_request_body_changes_nothing(tmp_path: Path) -> None:
    """RFC 8259 section 11 gives JSON no charset: a body is UTF-8 or refused (F032), whatever its label says."""
    async with running(tmp_path) as rig:
        for label in (b"application/json; charset=utf-8", b"application/json;charset=UTF-16", b"Text/JSON"):
            assert (
                await ask(rig.router.http_port, head(b"content-type: " + label) + sized(BODY))
            ).status == 200
        assert (await ask(rig.router.http_port, head() + sized(BODY))).status == 200


SENSELESS = (b"-1", b"1.5", b'"10"', b"true", b"1e309", b"9223372036854775808", b"9" * 4000)


async def test_f041_a_senseless_max_tokens_is_400_and_names_it(tmp_path: Path) -> None:
    """400 naming max_tokens, in small bodies and large. 0 is a number and the model server's to judge."""
    async with running(tmp_path) as rig:
        for value in SENSELESS:
            for padding in (b"", b"x" * (70 << 10)):
                body = b'{"model":"llama","pad":"%b","max_tokens":%b}' % (padding, value)
                answer = await ask(rig.router.http_port, head() + sized(body))
                assert answer.status == 400
                assert json.loads(answer.body)["error"]["param"] == "max_tokens"
        zero = await ask(rig.router.http_port, head() + sized(b'{"model":"llama","max_tokens":0}'))
        assert zero.status == 200
        assert len(rig.gateways["eu-a"].seen) == 1


async def test_f028_an_unknown_model_and_an_unknown_path_have_different_codes(tmp_path: Path) -> None:
    """Both are 404 with an OpenAI body; the code tells them apart."""
    async with running(tmp_path) as rig:
        model = await ask(rig.router.http_port, head() + sized(b'{"model":"no-such"}'))
        path = await ask(rig.router.http_port, head(target=b"/v1/no-such") + sized(BODY))
        assert (model.status, json.loads(model.body)["error"]["code"]) == (404, "model_not_found")
        assert (path.status, json.loads(path.body)["error"]["code"]) == (404, "unknown_url")


async def test_f031_the_name_that_was_granted_is_the_name_that_travels(tmp_path: Path) -> None:
    """A padded, cased or control-character name is another name: 404, and nothing is forwarded or reflected raw."""
    names = (r" llama ", r"LLAMA", r"llama\u0000", r"llama\r\nx-evil: 1", r"llama\ud83d\ude00")
    async with running(tmp_path) as rig:
        for name in names:
            answer = await ask(rig.router.http_port, head() + sized(b'{"model":"%b"}' % name.encode()))
            assert answer.status == 404
            assert "x-evil" not in answer.headers
        assert not any(gateway.seen for gateway in rig.gateways.values())
