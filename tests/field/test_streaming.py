"""Field cases of the category streaming, end to end: a hostile gateway's bytes, a client's bytes."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from services.core.failover.effects import Ending
from tests.field.wires import (
    BODY,
    CHUNKED,
    DONE,
    EVENT,
    SSE,
    STREAMED,
    USAGE,
    ask,
    chunk,
    head,
    playing,
    say,
    sized,
    stream,
)
from tests.global_router.rig import EU, Rig, running
from tests.support.wait import eventually

PLACES = {"eu-a": EU}


async def usage_of(rig: Rig) -> bytes | None:
    await eventually(lambda: not rig.router.life.live)
    return rig.records()[-1].usage


async def test_f043_an_event_split_anywhere_arrives_byte_for_byte(tmp_path: Path) -> None:
    """Characters cut by chunk borders are nobody's concern: the client reads the same bytes for every split."""
    whole = EVENT + DONE
    cuts = [*range(0, len(whole), 7), len(whole)]
    pieces = [chunk(whole[start:end]) for start, end in pairwise(cuts)]
    bytewise = [chunk(whole[at : at + 1]) for at in range(len(whole))]
    async with running(tmp_path, PLACES) as rig:
        for parts in (pieces, bytewise):
            async with playing(rig.gateways["eu-a"], say(SSE + CHUNKED, *parts, b"0\r\n\r\n")):
                answer = await ask(rig.router.http_port, head() + sized(STREAMED))
                assert (answer.status, answer.body) == (200, whole)
            await rig.gateways["eu-a"].start()


async def test_f044_usage_without_its_blank_line_is_counted(tmp_path: Path) -> None:
    """A last event in three pieces and without its blank line is read, and its stream is whole."""
    last = USAGE.rstrip()
    parts = (chunk(EVENT), chunk(last[:20]), chunk(last[20:50]), chunk(last[50:]), b"0\r\n\r\n")
    async with running(tmp_path, PLACES) as rig, playing(rig.gateways["eu-a"], say(SSE + CHUNKED, *parts)):
        body = STREAMED[:-1] + b',"stream_options":{"include_usage":true}}'
        answer = await ask(rig.router.http_port, head() + sized(body))
        assert answer.body == EVENT + last
        usage = await usage_of(rig)
        assert usage is not None
        assert json.loads(usage)["total_tokens"] == 12


async def test_f047_a_comment_ends_nothing(tmp_path: Path) -> None:
    """Both events behind a comment in one chunk are relayed."""
    whole = b": keepalive\n\n" + EVENT + EVENT + DONE
    async with running(tmp_path, PLACES) as rig, playing(rig.gateways["eu-a"], say(stream(whole))):
        assert (await ask(rig.router.http_port, head() + sized(STREAMED))).body == whole


@pytest.mark.parametrize("framing", [CHUNKED, b"\r\n"])
async def test_f049_a_stream_without_its_end_is_an_error_to_the_client(
    framing: bytes, tmp_path: Path
) -> None:
    """A clean end of the bytes without `[DONE]` is a cut: the client reads an error event and no `[DONE]`."""
    chunked = framing is CHUNKED
    first, rest = (chunk(EVENT), chunk(EVENT) + b"0\r\n\r\n") if chunked else (EVENT, EVENT)
    async with (
        running(tmp_path, PLACES) as rig,
        playing(rig.gateways["eu-a"], say(SSE + framing + first, rest)),
    ):
        answer = await ask(rig.router.http_port, head() + sized(STREAMED))
        if answer.status == 200:  # The first event had been passed on when the end came.
            assert answer.body.startswith(EVENT)
            assert b'data: {"error":{' in answer.body
        else:
            assert json.loads(answer.body)["error"]["code"] == "attempts_exhausted"
        assert b"[DONE]" not in answer.body
        await eventually(lambda: not rig.router.life.live)
        assert rig.router.life.tallies.endings[Ending.COMPLETED] == 0


async def test_f055_usage_of_a_large_plain_answer_is_found_wherever_it_stands(tmp_path: Path) -> None:
    """Three MiB in 64 KiB chunks, usage at the end or before the data: found once, bytes untouched."""
    usage, data = b'"usage":{"prompt_tokens":7,"total_tokens":7}', b'"data":["%b"]' % (b"x" * (3 << 20))
    async with running(tmp_path, PLACES) as rig:
        for body in (b"{%b,%b}" % (data, usage), b"{%b,%b}" % (usage, data)):
            chunks = [chunk(body[at : at + 65536]) for at in range(0, len(body), 65536)]
            start = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + CHUNKED
            async with playing(rig.gateways["eu-a"], say(start, *chunks, b"0\r\n\r\n")):
                assert (await ask(rig.router.http_port, head() + sized(BODY))).body == body
            assert await usage_of(rig) == usage.removeprefix(b'"usage":')
            await rig.gateways["eu-a"].start()


async def test_f056_f059_what_cannot_be_read_is_relayed_all_the_same(tmp_path: Path) -> None:
    """Compressed or mislabelled answers pass byte for byte under their own headers; their usage is unknown."""
    odd = (
        (b"content-encoding: gzip\r\n", b"\x1f\x8b\x08\x00 not really gzip", SSE),
        (b"", EVENT + DONE, b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"),
        (b"", b"{not json at all", SSE),
    )
    async with running(tmp_path, PLACES) as rig:
        for lines, body, start in odd:
            sent = start + lines + b"content-length: %d\r\n\r\n" % len(body) + body
            async with playing(rig.gateways["eu-a"], say(sent)):
                answer = await ask(rig.router.http_port, head() + sized(STREAMED))
                assert (answer.status, answer.body) == (200, body)
                assert ("content-encoding" in answer.headers) is bool(lines)
            assert await usage_of(rig) is None
            await rig.gateways["eu-a"].start()


async def test_f058_framing_and_hop_headers_of_an_upstream_end_here(tmp_path: Path) -> None:
    """Hop-by-hop headers, those that Connection names, and forged headers of ours do not reach the client."""
    lines = (
        b"connection: x-foo, keep-alive\r\nx-foo: 1\r\nkeep-alive: timeout=5\r\nproxy-authenticate: x\r\n"
        b"x-gir-cluster: forged\r\nx-gir-request-id: forged\r\nx-kept: 1\r\n"
    )
    async with (
        running(tmp_path, PLACES) as rig,
        playing(rig.gateways["eu-a"], say(stream(EVENT, DONE, lines=lines))),
    ):
        answer = await ask(rig.router.http_port, head() + sized(STREAMED))
        assert answer.body == EVENT + DONE
        assert answer.headers["x-kept"] == "1"
        assert answer.headers["connection"] == "close"
        assert not {"x-foo", "keep-alive", "proxy-authenticate"} & set(answer.headers)
        assert (answer.headers["x-gir-cluster"], answer.rest) == ("eu-a", b"")


@pytest.mark.parametrize("streamed", [False, True])
async def test_f062_usage_of_any_type_leaves_answer_record_and_router_alone(
    streamed: bool, tmp_path: Path
) -> None:
    """Relayed untouched; the record is written, with or without what was said; the router goes on."""
    values = (
        b'"oops"',
        b"[]",
        b'{"prompt_tokens":"1024"}',
        b'{"prompt_tokens":-5}',
        b'{"prompt_tokens_details":0}',
        b'{"total_tokens":1e400}',
        b'{"total_tokens":NaN}',
        b'{"a":"\\ud83d"}',
        b'{"a":"\xff"}',
        b'{"a":%b}' % (b"[" * 600 + b"]" * 600),
    )
    async with running(tmp_path, PLACES) as rig:
        for value in values:
            said = b'{"choices":[],"usage":%b}' % value
            plain = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(
                said
            )
            sent = stream(EVENT, b"data: " + said + b"\n\n", DONE) if streamed else plain + said
            body = STREAMED[:-1] + b',"stream_options":{"include_usage":true}}' if streamed else BODY
            async with playing(rig.gateways["eu-a"], say(sent)):
                answer = await ask(rig.router.http_port, head() + sized(body))
                assert answer.body == (EVENT + b"data: " + said + b"\n\n" + DONE if streamed else said)
            await rig.gateways["eu-a"].start()
        rig.router.log.flush()
        lines = (tmp_path / "decisions.jsonl").read_bytes().splitlines()
        assert [json.loads(line)["status"] for line in lines] == [200] * len(values)
        assert rig.router.log.dropped == 0
