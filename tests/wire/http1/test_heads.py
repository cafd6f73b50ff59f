"""Rendering of heads and the choice of headers that travel on."""

import pytest

from services.wire.http1.heads import (
    end_to_end,
    forwardable_block,
    header_block,
    request_head,
    status_line,
)


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (200, b"HTTP/1.1 200 OK\r\n"),
        (429, b"HTTP/1.1 429 Too Many Requests\r\n"),
        (599, b"HTTP/1.1 599 \r\n"),
    ],
)
def test_status_lines(status: int, line: bytes) -> None:
    assert status_line(status) == line


def test_a_block_is_lines() -> None:
    assert header_block([(b"a", b"1"), (b"b", b"")]) == b"a: 1\r\nb: \r\n"


def test_only_end_to_end_headers_go_on_and_the_answer_is_asked_for_plain() -> None:
    """F056: a compressed stream cannot be observed, so identity is asked of the upstream."""
    sent = [
        (b"host", b"h"),
        (b"connection", b"keep-alive, X-Hop"),
        (b"x-hop", b"1"),
        (b"keep-alive", b"t"),
        (b"te", b"trailers"),
        (b"content-length", b"3"),
        (b"transfer-encoding", b"chunked"),
        (b"expect", b"100-continue"),
        (b"proxy-authorization", b"p"),
        (b"accept-encoding", b"gzip, br, zstd"),
        (b"authorization", b"secret"),
        (b"traceparent", b"00-a"),
    ]
    assert forwardable_block(sent, without=frozenset((b"authorization",))) == (
        b"traceparent: 00-a\r\naccept-encoding: identity\r\n"
    )


def test_nothing_more_is_left_out_unless_asked() -> None:
    assert (
        forwardable_block([(b"authorization", b"a")]) == b"authorization: a\r\naccept-encoding: identity\r\n"
    )


def test_a_response_keeps_its_end_to_end_headers() -> None:
    headers = [(b"connection", b"close"), (b"content-length", b"3"), (b"server", b"s"), (b"upgrade", b"h2c")]
    assert end_to_end(headers) == [(b"content-length", b"3"), (b"server", b"s")]
    assert end_to_end(headers, without=frozenset((b"server",))) == [(b"content-length", b"3")]


@pytest.mark.parametrize(
    ("method", "size", "length"),
    [(b"POST", 2, b"content-length: 2\r\n"), (b"POST", 0, b"content-length: 0\r\n"), (b"GET", 0, b"")],
)
def test_a_request_head_tells_the_length_where_a_body_is_meant(
    method: bytes, size: int, length: bytes
) -> None:
    assert request_head(method, b"/p?q", b"h:1", b"a: b\r\n", size) == (
        method + b" /p?q HTTP/1.1\r\nhost: h:1\r\na: b\r\n" + length + b"\r\n"
    )
