"""Field cases of request bodies at the picker's HTTP door; `test_grpc_ext_proc` asserts the same over ext_proc."""

import gzip
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.endpoint_picker.cluster import MODEL, Cluster, chat, cluster_of
from tests.field.test_request_body import MALFORMED, SENSELESS

BODY = json.dumps(chat()).encode()
LIMIT = 1 << 20
DIRECT = {"port": 0, "accept": "direct", "body_max_bytes": LIMIT}


@asynccontextmanager
async def door(pods: int = 0) -> AsyncIterator[Cluster]:
    async with cluster_of(pods, http=DIRECT) as cluster:
        yield cluster


async def ask(
    cluster: Cluster, body: bytes, path: str = "/v1/chat/completions", **lines: str
) -> httpx.Response:
    headers = {name.replace("_", "-"): value for name, value in lines.items()}
    return await cluster.client.post(path, content=body, headers=headers)


def error(answer: httpx.Response) -> tuple[int, Any]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_f032_malformed_bodies_are_400_at_the_pickers_door() -> None:
    async with door() as cluster:
        for body, param in MALFORMED:
            answer = await ask(cluster, body.replace(b"llama", MODEL.encode()))
            said = answer.json()["error"]
            assert (answer.status_code, said["type"], said["param"]) == (400, "invalid_request_error", param)
            assert set(said) == {"message", "type", "param", "code"}
        assert cluster.picker.life.running == 0


@pytest.mark.parametrize("size", [0, 200_000])
async def test_f034_readable_codings_are_routed_and_others_refused(size: int) -> None:
    """An empty cluster answers 503 to what it could read: the codings are refused before anything is picked."""
    plain = json.dumps({**chat(), "pad": "x" * size}).encode()
    async with door() as cluster:
        for coding, body in (
            ("gzip", gzip.compress(plain)),
            ("deflate", zlib.compress(plain)),
            ("gzip, gzip", gzip.compress(gzip.compress(plain))),
            ("identity", plain),
        ):
            assert error(await ask(cluster, body, content_encoding=coding)) == (503, "no_endpoints")
        for coding in ("br", "zstd", "bogus", "gzip, br"):
            answer = await ask(cluster, gzip.compress(plain), content_encoding=coding)
            assert error(answer) == (415, "unsupported_content_encoding")
        cut = await ask(cluster, gzip.compress(plain)[:-5], content_encoding="gzip")
        assert error(cut) == (400, "invalid_value")


async def test_f035_a_bomb_is_413_and_coded_bytes_are_never_read_as_json() -> None:
    async with door() as cluster:
        stored = gzip.compress(BODY, compresslevel=0)
        assert b'"model"' in stored
        refused = await ask(cluster, stored, content_encoding="zstd")
        assert error(refused) == (415, "unsupported_content_encoding")
        bomb = gzip.compress(gzip.compress(bytes(1 << 28)))
        answer = await ask(cluster, bomb, content_encoding="gzip, gzip")
        assert error(answer) == (413, "request_too_large")


async def test_f037_the_limit_is_exact_at_the_pickers_door() -> None:
    async with door(1) as cluster:
        for size in (LIMIT - 1, LIMIT, LIMIT + 1):
            answer = await ask(cluster, BODY[:-1] + b" " * (size - len(BODY)) + b"}")
            if size > LIMIT:
                assert error(answer) == (413, "request_too_large")
            else:
                assert answer.status_code == 200


async def test_f038_nothing_is_redirected() -> None:
    async with door(1) as cluster:
        for path, status in {
            "/v1/chat/completions": 200,
            "/v1/chat/completions?x=1": 200,
            "/v1/chat/completions/": 404,
            "//v1/chat/completions": 404,
            "/api/v1/chat/completions": 404,
        }.items():
            url = f"http://127.0.0.1:{cluster.picker.http_port}{path}"
            answer = await ask(cluster, BODY, url)
            assert answer.status_code == status
            assert "location" not in answer.headers
            assert answer.json()


async def test_f040_labels_of_a_body_change_nothing_at_the_pickers_door() -> None:
    async with door(1) as cluster:
        for label in ("application/json; charset=utf-8", "application/json;charset=UTF-16", "text/plain"):
            assert (await ask(cluster, BODY, content_type=label)).status_code == 200
            utf_16 = await ask(cluster, BODY.decode().encode("utf-16"), content_type=label)
            assert error(utf_16) == (400, "invalid_json")


async def test_f041_a_senseless_max_tokens_is_400_at_the_pickers_door() -> None:
    async with door() as cluster:
        for value in SENSELESS:
            answer = await ask(cluster, b'{"model":"%b","max_tokens":%b}' % (MODEL.encode(), value))
            assert answer.status_code == 400
            assert answer.json()["error"]["param"] == "max_tokens"
