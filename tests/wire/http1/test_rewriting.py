"""A rewritten body through a passage: renamed at every split, framed so that its new length holds."""

import pytest

from services.wire.http1.limits import ResponseLimits
from services.wire.http1.observer import EventObserver, PlainObserver
from services.wire.http1.passage import LAST_CHUNK, Passage, chunk
from services.wire.http1.responses import ResponseParser
from services.wire.http1.rewriting import RewritingObserver
from services.wire.openai.rewrite import ModelBack
from tests.field.wires import parsed

JSON = b'{"id":"1","model":"base","usage":{"total_tokens":5}}'
RENAMED = JSON.replace(b"base", b"the-name-of-the-client")
EVENTS = (
    b'data: {"model":"base","choices":[{}]}\n\n',
    b'data: {"model": "base","choices":[]}\n\n',
    b"data: [DONE]\n\n",
)


def passed(*reads: bytes, minor_version: int = 1) -> tuple[bytes, Passage]:
    """What the client gets of an answer whose reads are these."""
    parser = ResponseParser(ResponseLimits())
    parser.expect(head_only=False)
    passage, out = None, b""
    for read in reads:
        raw = parser.feed(read)
        if parser.head is None:
            continue
        if passage is None:
            passage = Passage(
                parser.head,
                EventObserver() if parser.head.is_event_stream else PlainObserver(),
                client_minor_version=minor_version,
                client_keep_alive=True,
                rewriter=ModelBack("base", "the-name-of-the-client"),
            )
        body = parser.take_body()
        out += passage.pass_on(raw, body, at_boundary=parser.at_boundary, complete=parser.complete)
    assert passage is not None
    return passage.render_head() + out, passage


def answer(body: bytes, *lines: bytes) -> bytes:
    head = (b"HTTP/1.1 200 OK", b"content-type: application/json", b"content-length: %d" % len(body), *lines)
    return b"\r\n".join((*head, b"", body))


def test_json_of_a_known_length_is_renamed_and_chunked_at_every_split() -> None:
    whole = answer(JSON)
    for at in range(len(whole) + 1):
        out, _ = passed(*filter(None, (whole[:at], whole[at:])))
        got = parsed(out)
        assert got.body == RENAMED
        assert "content-length" not in got.headers
        assert got.rest == b""


def test_events_are_renamed_at_every_split_and_end_properly() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    whole = head + b"".join(map(chunk, EVENTS)) + LAST_CHUNK
    for at in range(1, len(whole)):
        out, passage = passed(whole[:at], whole[at:])
        assert parsed(out).body == b"".join(EVENTS).replace(b"base", b"the-name-of-the-client")
        assert not passage.unfinished
        assert out.endswith(LAST_CHUNK)


def test_an_old_client_reads_a_renamed_body_until_the_connection_closes() -> None:
    out, passage = passed(answer(JSON), minor_version=0)
    assert out.endswith(b"connection: close\r\n\r\n" + RENAMED)
    assert not passage.keep_alive


@pytest.mark.parametrize("coding", [b"gzip", b"identity"])
def test_a_coded_body_passes_as_it_came_and_an_identity_is_none(coding: bytes) -> None:
    out, _ = passed(answer(JSON, b"content-encoding: " + coding))
    assert parsed(out).body == (JSON if coding == b"gzip" else RENAMED)


def test_the_observer_sees_what_the_upstream_sent() -> None:
    inner = EventObserver()
    observer = RewritingObserver(inner, ModelBack("base", "c"))
    assert observer.feed(EVENTS[0][:-1]) == b""
    assert observer.holding
    assert observer.finish() == EVENTS[0][:-1].replace(b"base", b"c")
    assert observer.ready
    assert observer.unfinished
    assert (observer.done, observer.error) == (False, None)
    assert observer.feed(b'data: {"usage":{"total_tokens":5}}\n\n')
    assert observer.usage_object() == b'{"total_tokens":5}'
    assert observer.finish() == b""
    assert inner.bytes_seen == len(EVENTS[0]) - 1 + 36


def test_a_member_that_is_not_complete_is_kept_back_and_let_go_at_the_end() -> None:
    observer = RewritingObserver(PlainObserver(), ModelBack("base", "c"))
    assert observer.feed(b'{"model":"ba') == b"{"
    assert observer.holding
    assert observer.finish() == b'"model":"ba'
