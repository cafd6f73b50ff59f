"""The stream machine's bodies: content codings, what is held, and every way to split one."""

import gzip
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.units import Instant, seconds
from services.wire.ext_proc.events import (
    CHUNK_BYTES_MAX,
    AnswerRequestHeaders,
    Ask,
    Decision,
    Immediate,
    RequestBody,
    RequestHeaders,
    RequestTrailers,
    StreamRequestBody,
    StreamRules,
)
from services.wire.ext_proc.session import Phase, Session

NOW = Instant(0)


def body_effects(coding: bytes, body: bytes, rules: StreamRules) -> tuple[Session, list[object]]:
    session = Session(rules)
    session.receive(RequestHeaders(((b":method", b"POST"), (b"content-encoding", coding))), NOW)
    return session, list(session.receive(RequestBody(body, True), NOW))


def test_a_compressed_body_is_read_decoded_and_forwarded_as_it_came() -> None:
    coded = gzip.compress(b'{"model":"m"}')
    session, effects = body_effects(b"gzip", coded, StreamRules())
    assert [effect.body for effect in effects if isinstance(effect, Ask)] == [b'{"model":"m"}']
    head, body = session.decided(Decision(("a:1",)))
    assert isinstance(head, AnswerRequestHeaders)
    assert head.mutation.set == ((b"content-length", b"%d" % len(coded)),)
    assert body == StreamRequestBody(coded, True)


def test_a_rewritten_body_loses_its_coding() -> None:
    session, _ = body_effects(b"gzip", gzip.compress(b"{}"), StreamRules())
    head, body = session.decided(Decision(("a:1",), b"plain"))
    assert isinstance(head, AnswerRequestHeaders)
    assert head.mutation.remove == (b"content-encoding",)
    assert head.mutation.set == ((b"content-length", b"5"),)
    assert body == StreamRequestBody(b"plain", True)


@pytest.mark.parametrize(
    ("coding", "body", "status"),
    [
        (b"br", b"x", 415),
        (b"gzip", gzip.compress(b"x")[:-4], 400),
        (b"gzip", gzip.compress(bytes(1 << 20)), 413),
    ],
)
def test_a_body_that_cannot_be_decoded_is_refused(coding: bytes, body: bytes, status: int) -> None:
    _, effects = body_effects(coding, body, StreamRules(body_bytes_max=1 << 16))
    assert [effect.answer.status for effect in effects if isinstance(effect, Immediate)] == [status]


def test_what_is_held_is_told_and_let_go() -> None:
    session = Session(StreamRules())
    session.receive(RequestHeaders(()), NOW)
    session.receive(RequestBody(b"12345"), NOW)
    assert session.held_bytes == 5
    session.receive(RequestBody(b"", True), NOW)
    session.decided(Decision(("a:1",)))
    assert session.held_bytes == 0


@given(
    body=st.binary(max_size=300),
    cuts=st.lists(st.integers(0, 300), max_size=8),
    trailers=st.booleans(),
    grown=st.integers(0, 2),
)
def test_any_split_of_a_body_gives_the_same_request(
    body: bytes, cuts: list[int], trailers: bool, grown: int
) -> None:
    """Invariant: pieces returned join to the body sent, none above the maximum, and exactly one end is said."""
    body *= 1 + grown * 500
    session = Session(StreamRules())
    session.receive(RequestHeaders(((b":method", b"POST"),)), NOW)
    places = sorted({min(cut, len(body)) for cut in cuts} | {0, len(body)})
    pieces = [body[a:b] for a, b in pairwise(places)] or [b""]
    effects = []
    for number, piece in enumerate(pieces):
        last = number == len(pieces) - 1
        effects += session.receive(RequestBody(piece, last and not trailers), NOW)
    if trailers:
        effects += session.receive(RequestTrailers(), NOW)
    assert [effect.body for effect in effects if isinstance(effect, Ask)] == [body]
    sent = [each for each in session.decided(Decision(("a:1",))) if isinstance(each, StreamRequestBody)]
    assert b"".join(each.data for each in sent) == body
    assert all(len(each.data) <= CHUNK_BYTES_MAX for each in sent)
    assert [each.end_of_stream for each in sent] == [False] * (len(sent) - 1) + [not trailers]
    assert session.phase is Phase.DECIDED


def test_expired_says_nothing_before_its_deadline() -> None:
    session = Session(StreamRules(body_wait=seconds(5)))
    assert session.expired(NOW) == []
    session.receive(RequestHeaders(()), NOW)
    assert session.deadline == Instant(seconds(5))
    assert session.expired(Instant(seconds(5) - 1)) == []
