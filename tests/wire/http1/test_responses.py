"""Conversations of upstreams with the response machine: framing, interim heads, faults, every split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.wire.http1.limits import ResponseLimits
from services.wire.http1.responses import BodyFraming, ResponseError, ResponseHead, ResponseParser
from tests.wire.http1.splits import cuts, every_cut

LIMITS = ResponseLimits(head_bytes=300, header_count=6, interim_heads=2)
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x\r\nllo\r\n0\r\nT: v\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\nhello"


def head(*lines: bytes, status: bytes = b"200 OK", version: bytes = b"1.1") -> bytes:
    return b"HTTP/%b %b\r\n" % (version, status) + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def receive(*reads: bytes, head_only: bool = False) -> tuple[ResponseParser, bytes, bytes]:
    """Feed reads; return the machine, the raw bytes after the head, and the decoded body."""
    parser = ResponseParser(LIMITS)
    parser.expect(head_only=head_only)
    raw = body = b""
    for read in reads:
        raw += parser.feed(read)
        body += parser.take_body()
    return parser, raw, body


def read_head(data: bytes) -> ResponseHead:
    parser, _, _ = receive(data)
    assert parser.head is not None
    return parser.head


def verdict(reads: list[bytes]) -> tuple[object, ...]:
    try:
        parser, raw, body = receive(*reads)
    except ResponseError:
        return ("error",)
    seen = parser.head
    return (seen and (seen.status, seen.framing, seen.headers, seen.keep_alive), raw, body, parser.complete)


@pytest.mark.parametrize(
    ("data", "framing", "length", "complete"),
    [
        (PLAIN, BodyFraming.LENGTH, 5, True),
        (CHUNKED, BodyFraming.CHUNKED, None, True),
        (UNTIL_CLOSE, BodyFraming.CLOSE, None, False),
    ],
)
def test_bodies_are_decoded_and_framing_is_passed_out(
    data: bytes, framing: BodyFraming, length: int | None, complete: bool
) -> None:
    parser, raw, body = receive(data)
    assert parser.head is not None
    assert (parser.head.framing, parser.head.content_length, parser.complete) == (framing, length, complete)
    assert body == b"hello"
    assert raw == data.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize(
    "data", [PLAIN, CHUNKED, UNTIL_CLOSE, head(b"Content-Length: 0"), head(status=b"204 No")]
)
def test_every_split_gives_the_same_response(data: bytes) -> None:
    whole = verdict([data])
    for reads in every_cut(data):
        assert verdict(reads) == whole


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified", b"205 Reset Content"])
def test_statuses_without_a_body_end_with_their_head(status: bytes) -> None:
    parser, _, body = receive(head(status=status))
    assert parser.head is not None
    assert (parser.head.framing, body) == (BodyFraming.NONE, b"")


def test_the_answer_to_head_has_no_body_whatever_its_length_says() -> None:
    parser, raw, body = receive(head(b"Content-Length: 5"), head_only=True)
    assert parser.complete
    assert (raw, body) == (b"", b"")
    parser.expect()
    assert parser.feed(PLAIN) == b"hello"


def test_a_body_after_the_answer_to_head_is_an_error() -> None:
    with pytest.raises(ResponseError, match="after the end"):
        receive(PLAIN, head_only=True)


def test_interim_heads_are_skipped() -> None:
    parser, raw, body = receive(
        head(status=b"100 Continue") + head(b"Link: x", status=b"103 Early Hints") + PLAIN
    )
    assert parser.head is not None
    assert (parser.head.status, raw, body) == (200, b"hello", b"hello")


@pytest.mark.parametrize(
    ("lines", "version", "keep_alive"),
    [
        ((), b"1.1", True),
        ((b"Connection: close",), b"1.1", False),
        ((b"Connection: x, Close",), b"1.1", False),
        ((b"Connection: keep-alive",), b"1.1", True),
        ((), b"1.0", False),
        ((b"Connection: Keep-Alive",), b"1.0", True),
    ],
)
def test_persistence(lines: tuple[bytes, ...], version: bytes, keep_alive: bool) -> None:
    assert read_head(head(*lines, b"Content-Length: 0", version=version)).keep_alive is keep_alive


def test_a_body_until_close_ends_with_the_connection_and_only_then() -> None:
    parser, _, _ = receive(UNTIL_CLOSE)
    assert parser.head is not None
    assert not parser.head.keep_alive
    assert parser.end()
    assert parser.complete


@pytest.mark.parametrize("data", [PLAIN[:-1], CHUNKED[:-1], PLAIN[:20], b""])
def test_an_end_inside_a_response_does_not_complete_it(data: bytes) -> None:
    parser, _, _ = receive(data)
    assert not parser.end()


def test_a_connection_serves_response_after_response() -> None:
    parser = ResponseParser(LIMITS)
    for data in (PLAIN, CHUNKED, PLAIN):
        parser.expect()
        before = parser.started
        parser.feed(data)
        assert (before, parser.started) == (False, True)
        assert parser.take_body() == b"hello"
        assert parser.complete


def test_boundaries_between_chunks_are_told() -> None:
    parser = ResponseParser(LIMITS)
    parser.expect()
    parser.feed(head(b"Transfer-Encoding: chunked"))
    seen = []
    for read in (b"2\r\n", b"he", b"\r\n", b"3", b"\r\nllo\r\n"):
        parser.feed(read)
        seen.append(parser.at_boundary)
    assert seen == [False, False, True, True, True]


def test_headers_are_lowercase_pairs_and_looked_up_by_name() -> None:
    seen = read_head(head(b"X-A:  1 ", b"x-a: 2", b"Retry-After: 3", b"Content-Length: 0"))
    assert seen.headers == [(b"x-a", b"1"), (b"x-a", b"2"), (b"retry-after", b"3"), (b"content-length", b"0")]
    assert (seen.header(b"x-a"), seen.header(b"retry-after"), seen.header(b"none")) == (b"1", b"3", None)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"text/event-stream", True),
        (b"text/event-stream; charset=utf-8", True),
        (b"Text/Event-Stream;charset=UTF-8", True),
        (b"text/event-stream-not", False),
        (b"application/json; x=text/event-stream", False),
    ],
)
def test_f040_event_streams_are_known_by_media_type(value: bytes, expected: bool) -> None:
    assert read_head(head(b"Content-Type: " + value, b"Content-Length: 0")).is_event_stream is expected


def test_a_named_event_stream_needs_the_content_type_header() -> None:
    assert read_head(head(b"Accept: text/event-stream", b"Content-Length: 0")).is_event_stream is False


def test_the_header_block_is_the_upstreams_own_bytes() -> None:
    assert read_head(head(b"X-Odd:  a ", b"Content-Length: 0")).relayable_block(frozenset()) == (
        b"X-Odd:  a \r\nContent-Length: 0\r\n"
    )


def test_hop_by_hop_headers_and_named_ones_leave_the_block() -> None:
    seen = read_head(
        head(
            b"Connection: X-Hop, close", b"Keep-Alive: t", b"X-Hop: 1", b"Transfer-Encoding: chunked", b"X: y"
        )
    )
    assert seen.relayable_block(frozenset()) == b"x: y\r\ntransfer-encoding: chunked\r\n"
    assert seen.relayable_block(frozenset((b"transfer-encoding",))) == b"x: y\r\n"


def test_a_caller_may_leave_headers_out() -> None:
    seen = read_head(head(b"X-A: 1", b"X-B: 2", b"Content-Length: 0"))
    assert seen.relayable_block(frozenset((b"x-a", b"x-c"))) == b"x-b: 2\r\ncontent-length: 0\r\n"


FAULTS = {
    "garbage": b"SSH-2.0-OpenSSH\r\n\r\n",
    "HTTP/2 preface": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\r\n\r\n",
    "unknown version": b"HTTP/2.0 200 OK\r\n\r\n",
    "two lengths": head(b"Content-Length: 3", b"Content-Length: 4"),
    "length and coding": head(b"Content-Length: 3", b"Transfer-Encoding: chunked"),
    "coding and length": head(b"Transfer-Encoding: chunked", b"Content-Length: 3"),
    "unknown coding": head(b"Transfer-Encoding: gzip"),
    "two codings": head(b"Transfer-Encoding: gzip, chunked"),
    "coding twice": head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip"),
    "folded header": head(b"X: a\r\n b"),
    "NUL": head(b"X: a\x00"),
    "bare LF": b"HTTP/1.1 200 OK\nContent-Length: 0\n\r\n\r\n",
    "switching protocols": head(b"Upgrade: x", b"Connection: upgrade", status=b"101 Switching"),
    "interim with a body": head(b"Content-Length: 5", status=b"103 Hints") + b"hello" + PLAIN,
    "too many interim": head(status=b"100 Continue") * 3 + PLAIN,
    "too many headers": head(*(b"X: %d" % n for n in range(7))),
    "head too large": head(b"X: " + b"a" * 300),
    "head without end": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 400,
    "second response": PLAIN + PLAIN,
    "bytes after length": PLAIN + b"x",
    "CRLF after length": PLAIN + b"\r\n",
    "CRLF after chunked": CHUNKED + b"\r\n",
    "body after 204": head(status=b"204 No Content") + b"hello",
    "CRLF after 204": head(status=b"204 No Content") + b"\r\n",
    "bad chunk size": head(b"Transfer-Encoding: chunked") + b"z\r\n",
    "chunk overrun": head(b"Transfer-Encoding: chunked") + b"2\r\nhello\r\n",
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_not_one_response_is_an_error(name: str) -> None:
    with pytest.raises(ResponseError):
        receive(FAULTS[name])


@pytest.mark.parametrize("name", FAULTS)
def test_no_split_hides_a_fault(name: str) -> None:
    for reads in every_cut(FAULTS[name]):
        assert verdict(reads) == ("error",)


@given(st.data(), st.lists(st.binary(min_size=1, max_size=30), max_size=5))
def test_chunked_bodies_survive_any_split(data: st.DataObject, pieces: list[bytes]) -> None:
    """Invariant: decoded body and raw bytes depend on the bytes sent, never on how reads cut them."""
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    sent = head(b"Transfer-Encoding: chunked") + framed
    parser, raw, body = receive(*data.draw(cuts(sent)))
    assert (raw, body, parser.complete, parser.at_boundary) == (framed, b"".join(pieces), True, True)


@given(st.data(), st.binary(max_size=200))
def test_garbage_is_an_error_or_waits(data: st.DataObject, garbage: bytes) -> None:
    """Invariant: whatever comes, the machine raises ResponseError or waits for more; nothing else escapes."""
    sent = data.draw(st.sampled_from([b"", PLAIN[:40], CHUNKED[:60]])) + garbage
    verdict(data.draw(cuts(sent)))
