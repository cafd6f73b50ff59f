"""Heads that repeat: what is taken as the same, what goes to llhttp again, and that nobody can tell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.wire.http1.limits import RequestLimits
from services.wire.http1.recurring import HeadMemory
from services.wire.http1.refusals import Refusal
from services.wire.http1.requests import Request, RequestParser

LIMITS = RequestLimits(head_bytes=400, target_bytes=64, header_count=8, body_bytes=32, pipelined_requests=3)
LINES = b"Host: a\r\nAuthorization: Bearer t\r\n"


def post(body: bytes, lines: bytes = LINES, length: bytes | None = None, version: bytes = b"1.1") -> bytes:
    digits = b"%d" % len(body) if length is None else length
    return b"POST /v1/x HTTP/%b\r\n%bContent-Length: %b\r\nX-B: c\r\n\r\n%b" % (version, lines, digits, body)


def shown(items: list[Request | Refusal]) -> list[object]:
    return [
        item
        if isinstance(item, Refusal)
        else (
            item.method,
            item.target,
            item.headers,
            item.body,
            item.minor_version,
            item.keep_alive,
            item.expects_continue,
        )
        for item in items
    ]


def request_of(parser: RequestParser, data: bytes) -> Request:
    (item,) = parser.feed(data)
    assert isinstance(item, Request)
    return item


def test_a_repeated_head_is_recognised_with_another_length() -> None:
    parser = RequestParser(LIMITS)
    first = request_of(parser, post(b"hello"))
    second = request_of(parser, post(b"a longer body"))
    third = request_of(parser, post(b"other again!!"))
    assert first.recurring is None
    assert second.recurring is not None
    assert third.recurring is second.recurring
    assert (second.body, third.body) == (b"a longer body", b"other again!!")
    assert first.header(b"content-length") == b"5"
    assert second.header(b"content-length") == third.header(b"content-length") == b"13"
    assert second.header(b"authorization") == b"Bearer t"


def test_what_was_made_of_a_head_stays_with_it_only() -> None:
    parser = RequestParser(LIMITS)
    request_of(parser, post(b"1"))
    known = request_of(parser, post(b"2")).recurring
    assert known is not None
    known.reading = "read"
    assert request_of(parser, post(b"3")).recurring is known
    other = request_of(parser, post(b"4", b"Host: a\r\nAuthorization: Bearer u\r\n"))
    assert (other.recurring, other.header(b"authorization")) == (None, b"Bearer u")
    again = request_of(parser, post(b"5", b"Host: a\r\nAuthorization: Bearer u\r\n")).recurring
    assert again is not None
    assert again.reading is None


@pytest.mark.parametrize(
    "second",
    [
        post(b"hello", length=b"4"),
        post(b"hello", length=b"6"),
        post(b"hello", length=b"05"),
        post(b"hello", length=b"+5"),
        post(b"hello", length=b"5 "),
        post(b"hello", length=b"5, 5"),
        post(b"hello", length=b""),
        post(b"hello", length=b"99999999999"),
        post(b"", length=b"0"),
        post(b"x" * 33),
        post(b"hello") + post(b"hello"),
        post(b"hello")[:-7],
        post(b"hello", version=b"1.0"),
        post(b"hello", LINES + b"Content-Length: 5\r\n"),
        post(b"hello", LINES + b"Transfer-Encoding: chunked\r\n"),
        post(b"hello", LINES + b"Expect: 100-continue\r\n"),
        post(b"hello", LINES + b"Connection: close\r\n"),
        post(b"hello", LINES + b"Connection: upgrade\r\nUpgrade: h2c\r\n"),
    ],
)
def test_a_connection_that_knows_the_head_answers_as_one_that_does_not(second: bytes) -> None:
    knowing = RequestParser(LIMITS)
    knowing.feed(post(b"first"))
    for _ in range(3):
        fresh = RequestParser(LIMITS)
        items = knowing.feed(second)
        assert shown(items) == shown(fresh.feed(second))
        assert (knowing.mid_request, knowing.mid_body) == (fresh.mid_request, fresh.mid_body)
        if not items or not (isinstance(items[-1], Request) and items[-1].keep_alive):
            return


@given(
    st.lists(
        st.tuples(st.sampled_from([LINES, b"Host: b\r\n", b"Host: c\r\nX: y\r\n"]), st.binary(max_size=32)),
        max_size=12,
    ),
    st.data(),
)
def test_requests_are_the_same_whatever_came_before(
    sent: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    """What a connection makes of a request does not depend on the requests before it, nor on how reads split them."""
    knowing = RequestParser(LIMITS)
    for lines, body in sent:
        whole = post(body, lines)
        cut = data.draw(st.integers(0, len(whole)))
        reads = (whole[:cut], whole[cut:]) if cut % 2 else (whole,)
        got = [item for read in reads for item in knowing.feed(read)]
        assert shown(got) == shown(RequestParser(LIMITS).feed(whole))


def test_a_client_whose_heads_differ_is_not_watched_for_long() -> None:
    parser = RequestParser(LIMITS)
    for number in range(9):
        request_of(parser, post(b"b", b"Host: a\r\nTraceparent: %d\r\n" % number))
    last = b"Host: a\r\nTraceparent: 9\r\n"
    assert request_of(parser, post(b"b", last)).recurring is None
    assert request_of(parser, post(b"b", last)).recurring is None


def test_a_closed_parser_knows_nothing() -> None:
    parser = RequestParser(LIMITS)
    parser.feed(post(b"b"))
    parser.close()
    assert parser.feed(post(b"b")) == []


def learned(data: bytes, body_size: int, head_bytes_max: int = 400) -> bool:
    memory = HeadMemory()
    memory.note(data, begun=False)
    request = Request(b"POST", b"/", [(b"host", b"a"), (b"content-length", b"1")], b"b" * body_size)
    memory.learn(request, head_bytes_max)
    return memory.head is not None


def test_large_heads_and_heads_without_a_plain_length_are_not_kept() -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n"
    assert learned(head + b"b", 1)
    assert not learned(head + b"b", 1, len(head) + 8)
    assert not learned(b"X: %b\r\n%bb" % (b"x" * 4096, head), 1, 1 << 15)
    assert not learned(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 0)
    assert not learned(b"\r\n\r\n" + head + b"b", 1)
    assert not learned(head + b"b" + head + b"b", 1)
    assert not learned(b"", 0)


def test_a_body_may_follow_its_head_in_other_reads() -> None:
    head, body = post(b"hello")[:-5], b"hello"
    parser = RequestParser(LIMITS)
    assert list(parser.feed(head)) == []
    assert request_of(parser, body).recurring is None
    assert parser.feed(head) == []
    assert (parser.mid_request, parser.mid_body, parser.take_expectation()) == (True, True, False)
    screened = parser.head()
    assert (screened.method, screened.body, screened.keep_alive) == (b"POST", b"", False)
    assert screened.header(b"content-length") == b"5"
    assert parser.feed(body[:2]) == []
    whole = request_of(parser, body[2:])
    assert (whole.body, whole.keep_alive, whole.recurring) == (b"hello", True, screened.recurring)
    assert not parser.mid_request


def test_requests_may_follow_an_awaited_body_in_its_read() -> None:
    parser = RequestParser(LIMITS)
    parser.feed(post(b"hello"))
    parser.feed(post(b"hello")[:-2])
    items = parser.feed(b"lo" + post(b"second") + post(b"third")[:-1])
    assert [item.body for item in items if isinstance(item, Request)] == [b"hello", b"second"]
    assert request_of(parser, b"d").body == b"third"


def test_closing_forgets_an_awaited_body() -> None:
    parser = RequestParser(LIMITS)
    parser.feed(post(b"hello"))
    parser.feed(post(b"hello")[:-2])
    parser.close()
    assert parser.feed(b"lo") == []
