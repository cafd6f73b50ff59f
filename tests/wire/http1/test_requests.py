"""Conversations of clients with the request machine: requests, refusals, limits, every split."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.wire.http1.limits import RequestLimits
from services.wire.http1.refusals import Refusal
from services.wire.http1.requests import Request, RequestParser
from tests.wire.http1.splits import cuts, every_cut

LIMITS = RequestLimits(head_bytes=400, target_bytes=64, header_count=8, body_bytes=32, pipelined_requests=3)
POST = b"POST /v1/x?y=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED = b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nT: v\r\n\r\n"


def receive(*reads: bytes, limits: RequestLimits = LIMITS) -> list[Request | Refusal]:
    parser = RequestParser(limits)
    return [item for read in reads for item in parser.feed(read)]


def shown(items: list[Request | Refusal]) -> list[object]:
    return [
        item
        if isinstance(item, Refusal)
        else (item.method, item.target, item.headers, item.body, item.minor_version, item.keep_alive)
        for item in items
    ]


def one(*reads: bytes, limits: RequestLimits = LIMITS) -> Request:
    (item,) = receive(*reads, limits=limits)
    assert isinstance(item, Request)
    return item


def refusal(*reads: bytes, limits: RequestLimits = LIMITS) -> Refusal:
    item = receive(*reads, limits=limits)[-1]
    assert isinstance(item, Refusal)
    return item


def head(*lines: bytes, method: bytes = b"POST", version: bytes = b"1.1", host: bool = True) -> bytes:
    named = (b"Host: a", *lines) if host else lines
    return b"%b /p HTTP/%b\r\n" % (method, version) + b"".join(line + b"\r\n" for line in named) + b"\r\n"


def test_a_request_is_whole() -> None:
    request = one(POST)
    assert (request.method, request.target, request.path) == (b"POST", b"/v1/x?y=1", b"/v1/x")
    assert request.headers == [(b"host", b"a"), (b"content-length", b"5")]
    assert (request.body, request.minor_version, request.keep_alive) == (b"hello", 1, True)


def test_a_chunked_body_is_decoded_and_its_trailers_are_not_headers() -> None:
    request = one(CHUNKED)
    assert request.body == b"hello"
    assert request.header(b"t") is None


def test_lookup_is_lowercase_and_joins_repeated_lines() -> None:
    request = one(head(b"X-A: 1", b"x-a:  2 \t", b"Authorization: t", method=b"GET"))
    assert request.header(b"x-a") == b"1, 2"
    assert request.header(b"authorization") == b"t"
    assert request.header(b"missing") is None


def test_names_once_each_need_no_joining() -> None:
    assert one(GET).header(b"host") == b"a"


def test_pipelined_requests_come_out_in_order() -> None:
    assert [item.target for item in receive(GET + POST + CHUNKED) if isinstance(item, Request)] == [
        b"/",
        b"/v1/x?y=1",
        b"/c",
    ]


def test_a_flood_of_pipelined_requests_is_refused_after_the_bounded_ones() -> None:
    items = receive(GET * 20)
    assert [type(item) for item in items] == [Request, Request, Request, Refusal]
    assert isinstance(items[-1], Refusal)
    assert items[-1].status == 429


def test_nothing_follows_a_refusal() -> None:
    assert receive(b"garbage\r\n\r\n", GET, POST)[1:] == []


def test_blank_lines_before_a_request_are_skipped() -> None:
    assert one(b"\r\n\r\n" + GET).target == b"/"


@pytest.mark.parametrize(
    ("lines", "version", "keep_alive"),
    [
        ((), b"1.1", True),
        ((b"Connection: close",), b"1.1", False),
        ((b"Connection: Keep-Alive, Close",), b"1.1", False),
        ((), b"1.0", False),
        ((b"Connection: keep-alive",), b"1.0", True),
    ],
)
def test_persistence(lines: tuple[bytes, ...], version: bytes, keep_alive: bool) -> None:
    assert one(head(*lines, method=b"GET", version=version)).keep_alive is keep_alive


def test_http_1_0_needs_no_host() -> None:
    assert one(head(method=b"GET", version=b"1.0", host=False)).minor_version == 0


@pytest.mark.parametrize(
    ("target", "seen"),
    [
        (b"http://h/p?q", b"/p?q"),
        (b"HTTPS://h:1/p", b"/p"),
        (b"http://h", b"/"),
        (b"http://h?q=/x", b"/?q=/x"),
    ],
)
def test_absolute_targets_become_origin_form(target: bytes, seen: bytes) -> None:
    assert one(b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n").target == seen


def test_the_asterisk_belongs_to_options() -> None:
    assert one(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").target == b"*"


SMUGGLING = {
    "length and coding": head(b"Content-Length: 3", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "coding and length": head(b"Transfer-Encoding: chunked", b"Content-Length: 3") + b"0\r\n\r\n",
    "two equal lengths": head(b"Content-Length: 3", b"Content-Length: 3") + b"abc",
    "two lengths": head(b"Content-Length: 3", b"Content-Length: 4") + b"abcd",
    "length list": head(b"Content-Length: 3, 3") + b"abc",
    "signed length": head(b"Content-Length: +3") + b"abc",
    "negative length": head(b"Content-Length: -3") + b"abc",
    "hexadecimal length": head(b"Content-Length: 0x3") + b"abc",
    "empty length": head(b"Content-Length:") + b"abc",
    "length overflow": head(b"Content-Length: 99999999999999999999999") + b"abc",
    "space before colon": head(b"Content-Length : 3") + b"abc",
    "chunked not last": head(b"Transfer-Encoding: chunked, gzip") + b"0\r\n\r\n",
    "chunked twice": head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "vertical tab in coding": head(b"Transfer-Encoding: \x0bchunked") + b"0\r\n\r\n",
    "coding in HTTP/1.0": head(b"Transfer-Encoding: chunked", version=b"1.0") + b"0\r\n\r\n",
    "folded header": head(b"X: a\r\n b"),
    "folded first header": head(b" X: a"),
    "NUL in value": head(b"X: a\x00b"),
    "bare CR in value": head(b"X: a\rb"),
    "bare LF between headers": head(b"X: a\nY: b"),
    "DEL in value": head(b"X: a\x7fb"),
    "space in name": head(b"X y: b"),
    "empty name": head(b": b"),
    "non-ASCII name": head(b"X\xff: b"),
    "chunk without CRLF": head(b"Transfer-Encoding: chunked") + b"3\r\nabcX\r\n0\r\n\r\n",
    "chunk size with bare LF": head(b"Transfer-Encoding: chunked") + b"3\nabc\r\n0\r\n\r\n",
    "chunk size with prefix": head(b"Transfer-Encoding: chunked") + b"0x3\r\nabc\r\n0\r\n\r\n",
    "chunk size with space": head(b"Transfer-Encoding: chunked") + b"3 \r\nabc\r\n0\r\n\r\n",
    "chunk size overflow": head(b"Transfer-Encoding: chunked") + b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    "no host": head(host=False),
    "two hosts": head(b"Host: b"),
    "two hosts in HTTP/1.0": head(b"Host: b", version=b"1.0"),
    "space in target": b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
    "line feed in request line": b"GET /\n HTTP/1.1\r\nHost: a\r\n\r\n",
    "data after close": b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
}


@pytest.mark.parametrize("name", SMUGGLING)
def test_ambiguous_framing_is_refused_with_400(name: str) -> None:
    assert refusal(SMUGGLING[name]).status == 400


@pytest.mark.parametrize("name", SMUGGLING)
def test_no_request_is_made_of_ambiguous_bytes_however_they_are_split(name: str) -> None:
    whole = shown(receive(SMUGGLING[name]))
    for reads in every_cut(SMUGGLING[name]):
        assert shown(receive(*reads)) == whole


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (head(b"Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n", 501),
        (head(b"Transfer-Encoding: identity"), 501),
        (b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        (b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (head(b"Expect: magic"), 417),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505),
        (b"GET /\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET ftp://h/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /" + b"a" * 64 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (head(*(b"X: %d" % n for n in range(8))), 431),
        (head(b"X: " + b"a" * 400), 431),
        (head(b"Content-Length: 33"), 413),
        (head(b"Transfer-Encoding: chunked") + b"21\r\n" + b"a" * 33, 413),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 501),
    ],
)
def test_what_is_not_served_is_refused_by_name(data: bytes, status: int) -> None:
    assert refusal(data).status == status


def test_bodies_at_the_limit_pass() -> None:
    assert len(one(head(b"Content-Length: 32") + b"a" * 32).body) == 32


def test_a_body_too_large_is_refused_before_it_is_read() -> None:
    assert refusal(head(b"Content-Length: 33")).reason == "body_too_large"


def test_a_head_that_never_ends_is_refused() -> None:
    parser = RequestParser(LIMITS)
    assert parser.feed(b"GET / HTTP/1.1\r\nHost: a\r\nX: ") == []
    fed = 0
    items: list[Request | Refusal] = []
    while not items:
        items = parser.feed(b"aaaa")
        fed += 4
    assert isinstance(items[0], Refusal)
    assert items[0].status == 431
    assert fed <= LIMITS.head_bytes + 4


def test_a_small_head_behind_a_long_pipelined_body_passes() -> None:
    limits = replace(LIMITS, body_bytes=1000)
    items = receive(head(b"Content-Length: 900") + b"a" * 900 + GET, limits=limits)
    assert [type(item) for item in items] == [Request, Request]


def test_trailers_count_against_the_head_limit() -> None:
    assert refusal(CHUNKED.replace(b"T: v", b"T: " + b"v" * 500)).status == 431


@pytest.mark.parametrize("method", [b"GET", b"POST"])
@pytest.mark.parametrize(
    "lines",
    [
        (b"Connection: upgrade", b"Upgrade: websocket"),
        (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAA"),
    ],
)
def test_f181_an_upgrade_is_declined_by_going_on(method: bytes, lines: tuple[bytes, ...]) -> None:
    """RFC 9110 7.8: a server may ignore it. The request is served and the next one on the connection too."""
    body = b"hi" if method == b"POST" else b""
    one = head(*lines, b"Content-Length: %d" % len(body), method=method) + body
    for reads in [[one * 3], *every_cut(one * 3)]:
        items = receive(*reads)
        assert [(item.method, item.body) for item in items if isinstance(item, Request)] == [
            (method, body)
        ] * 3
    flood = receive(one * (LIMITS.pipelined_requests + 1))
    assert isinstance(flood[-1], Refusal)
    assert flood[-1].status == 429


def test_a_tunnel_is_refused() -> None:
    assert refusal(head(method=b"CONNECT")).reason == "no_tunnel"


def test_continue_is_due_once_and_only_while_the_body_is_missing() -> None:
    parser = RequestParser(LIMITS)
    assert parser.feed(head(b"Expect: 100-Continue", b"Content-Length: 2")) == []
    assert (parser.mid_request, parser.mid_body) == (True, True)
    assert [parser.take_expectation(), parser.take_expectation()] == [True, False]
    (item,) = parser.feed(b"hi")
    assert isinstance(item, Request)
    assert item.body == b"hi"
    assert not parser.mid_request


def test_continue_is_not_due_when_the_body_came_along() -> None:
    parser = RequestParser(LIMITS)
    assert parser.feed(head(b"Expect: 100-continue", b"Content-Length: 2") + b"h") == []
    assert parser.take_expectation() is False


def test_continue_is_not_for_http_1_0() -> None:
    parser = RequestParser(LIMITS)
    assert parser.feed(head(b"Expect: 100-continue", b"Content-Length: 2", version=b"1.0")) == []
    assert parser.take_expectation() is False


def test_a_closed_parser_ignores_bytes() -> None:
    parser = RequestParser(LIMITS)
    parser.close()
    assert parser.feed(GET) == []


CONVERSATION = POST + GET + CHUNKED


def test_every_split_gives_the_same_requests() -> None:
    whole = shown(receive(CONVERSATION))
    assert len(whole) == 3
    for reads in every_cut(CONVERSATION):
        assert shown(receive(*reads)) == whole


TOKENS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12).map(str.encode)


@given(st.data(), st.lists(st.binary(max_size=20), max_size=4), TOKENS)
def test_requests_survive_any_split(data: st.DataObject, bodies: list[bytes], value: bytes) -> None:
    """Invariant: the requests that come out depend on the bytes, never on how reads cut them."""
    limits = replace(LIMITS, pipelined_requests=8)
    sent = b"".join(head(b"X: " + value, b"Content-Length: %d" % len(body)) + body for body in bodies)
    items = receive(*data.draw(cuts(sent)), limits=limits)
    assert [item.body for item in items if isinstance(item, Request)] == bodies
    assert all(isinstance(item, Request) and item.header(b"x") == value for item in items)


@given(st.data(), st.binary(max_size=200))
def test_garbage_never_raises_and_is_judged_alike_at_any_split(data: st.DataObject, garbage: bytes) -> None:
    """Invariant: any bytes give requests and at most one refusal, last; the same for every split."""
    sent = data.draw(st.sampled_from([b"", GET, POST[:40], CHUNKED[:70], CHUNKED[:-8]])) + garbage
    whole = receive(sent)
    assert all(isinstance(item, Request) for item in whole[:-1])
    assert shown(receive(*data.draw(cuts(sent)))) == shown(whole)
