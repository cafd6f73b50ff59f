"""What a client receives of an upstream's response, for every split, client version and mode."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.wire.http1.limits import ResponseLimits
from services.wire.http1.observer import EventObserver, PlainObserver
from services.wire.http1.passage import LAST_CHUNK, Outgoing, Passage, chunk
from services.wire.http1.responses import ResponseParser
from tests.wire.http1.splits import cuts, every_cut

EVENTS = [b'data: {"n":%d,"choices":[{}]}\n\n' % n for n in range(3)]
USAGE = b'data: {"choices":[],"usage":{"total_tokens":5}}\n\n'
DONE = b"data: [DONE]\n\n"
SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def chunked(*pieces: bytes, head: bytes = SSE_HEAD) -> bytes:
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(map(chunk, pieces)) + LAST_CHUNK


class Client:
    """The pure part of an exchange: parser, observer and passage, fed with reads."""

    def __init__(
        self, *, minor_version: int = 1, keep_alive: bool = True, drop: bool = False, head: bool = False
    ) -> None:
        self.parser = ResponseParser(ResponseLimits())
        self.parser.expect(head_only=head)
        self.minor_version = minor_version
        self.keep_alive = keep_alive
        self.drop = drop
        self.head = head
        self.passage: Passage | None = None
        self.writes: list[bytes] = []

    def feed(self, *reads: bytes) -> "Client":
        for read in reads:
            raw = self.parser.feed(read)
            head = self.parser.head
            if head is None:
                continue
            if self.passage is None:
                self.passage = Passage(
                    head,
                    EventObserver(drop_usage=self.drop) if head.is_event_stream else PlainObserver(),
                    client_minor_version=self.minor_version,
                    client_keep_alive=self.keep_alive,
                    head_request=self.head,
                )
            body = self.parser.take_body()
            self.writes.append(
                self.passage.pass_on(
                    raw, body, at_boundary=self.parser.at_boundary, complete=self.parser.complete
                )
            )
        return self

    def end(self) -> "Client":
        assert self.passage is not None
        assert self.parser.end()
        self.writes.append(self.passage.pass_on(b"", b"", at_boundary=True, complete=True))
        return self

    @property
    def received(self) -> bytes:
        assert self.passage is not None
        return self.passage.render_head() + b"".join(self.writes)


def decoded(received: bytes) -> tuple[bytes, bool]:
    """Read what a client received with an independent machine; body, and whether it ended properly."""
    parser = ResponseParser(ResponseLimits())
    parser.expect()
    parser.feed(received)
    return parser.take_body(), parser.complete or parser.end()


STREAM = chunked(*EVENTS, USAGE, DONE)


def test_a_chunked_stream_passes_untouched() -> None:
    client = Client().feed(STREAM)
    assert client.received == STREAM


def test_reads_that_end_between_events_pass_untouched() -> None:
    pieces = [SSE_HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *map(chunk, EVENTS), chunk(DONE), LAST_CHUNK]
    client = Client().feed(*pieces)
    assert client.writes == [b"", *pieces[1:]]


def test_f043_every_split_gives_the_client_the_same_body() -> None:
    for reads in every_cut(STREAM):
        assert decoded(Client().feed(*reads).received) == (b"".join([*EVENTS, USAGE, DONE]), True)


def test_f052_the_usage_event_is_left_out_at_every_split() -> None:
    for reads in [[STREAM], *every_cut(STREAM)]:
        assert decoded(Client(drop=True).feed(*reads).received) == (b"".join([*EVENTS, DONE]), True)


def test_dropping_touches_only_the_read_with_the_usage_event() -> None:
    pieces = [
        SSE_HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
        *map(chunk, EVENTS),
        chunk(USAGE),
        chunk(DONE),
        LAST_CHUNK,
    ]
    client = Client(drop=True).feed(*pieces)
    assert client.writes == [b"", *pieces[1:4], b"", *pieces[5:]]


def test_the_client_stands_between_chunks_and_events_after_every_read() -> None:
    for reads in every_cut(STREAM):
        client = Client()
        for read in reads:
            client.feed(read)
            if client.passage is None or client.parser.complete:
                continue
            assert client.passage.can_append
            body, ended = decoded(client.received + client.passage.append(b"data: error\n\n"))
            assert ended
            assert body.endswith(b"\n\ndata: error\n\n") or body == b"data: error\n\n"


def test_f058_a_length_passes_as_it_came() -> None:
    data = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\nhello"
    for reads in [[data], *every_cut(data)]:
        client = Client().feed(*reads)
        assert client.received == data
        assert client.passage is not None
        assert (client.passage.outgoing, client.passage.can_append) == (Outgoing.AS_RECEIVED, False)


def test_an_event_stream_with_a_length_becomes_chunked() -> None:
    body = b"".join([*EVENTS, DONE])
    client = Client(drop=True).feed(SSE_HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert b"Content-Length" not in client.received
    assert decoded(client.received) == (body, True)


def test_a_body_until_close_becomes_chunked_and_the_client_stays() -> None:
    client = Client().feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhel", b"lo").end()
    assert decoded(client.received) == (b"hello", True)
    assert b"close" not in client.received
    assert client.passage is not None
    assert client.passage.keep_alive


def test_an_http_1_0_client_gets_no_chunks() -> None:
    client = Client(minor_version=0).feed(STREAM)
    assert client.received == (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        + b"".join([*EVENTS, USAGE, DONE])
    )
    assert client.passage is not None
    assert client.passage.append(b"x") == b"x"


def test_an_http_1_0_client_may_stay_when_the_length_is_known() -> None:
    client = Client(minor_version=0).feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
    assert client.received == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nconnection: keep-alive\r\n\r\nhi"


def test_the_upstreams_persistence_is_not_the_clients() -> None:
    client = Client(keep_alive=False).feed(b"HTTP/1.1 200 OK\r\nKeep-Alive: x\r\nContent-Length: 2\r\n\r\nhi")
    assert client.received == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi"


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_a_response_without_a_body_is_a_head(status: bytes) -> None:
    data = b"HTTP/1.1 " + status + b"\r\nX: y\r\n\r\n"
    assert Client().feed(data).received == data


def test_the_answer_to_head_keeps_its_length_and_has_no_body() -> None:
    data = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    assert Client(head=True).feed(data).received == data


def test_headers_are_added_and_left_out() -> None:
    client = Client().feed(b"HTTP/1.1 200 OK\r\nX-A: 1\r\nContent-Length: 0\r\n\r\n")
    assert client.passage is not None
    assert client.passage.render_head(b"x-b: 2\r\n", without=frozenset((b"x-a",))) == (
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-b: 2\r\n\r\n"
    )


@pytest.mark.parametrize("complete", [True, False])
def test_a_started_client_gets_a_plain_body_in_chunks(complete: bool) -> None:
    client = Client().feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", *([b"lo"] if complete else []))
    assert client.passage is not None
    out = client.passage.join_started(b"".join(client.writes), complete=complete)
    if not complete:
        out += client.feed(b"lo").writes[-1]
    assert decoded(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + out) == (b"hello", True)


def test_a_started_client_gets_a_stream_as_it_is() -> None:
    client = Client().feed(STREAM)
    assert client.passage is not None
    assert (
        client.passage.join_started(b"".join(client.writes), complete=True)
        == STREAM.partition(b"\r\n\r\n")[2]
    )


def test_a_started_http_1_0_client_gets_the_bare_body_and_is_closed() -> None:
    client = Client(minor_version=0).feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
    assert client.passage is not None
    assert client.passage.join_started(b"hello", complete=True) == b"hello"
    assert client.passage.keep_alive is False


@pytest.mark.parametrize("minor_version", [0, 1])
def test_f044_a_last_event_without_its_blank_line_still_goes_out(minor_version: int) -> None:
    data = chunked(*EVENTS, USAGE.rstrip())
    for reads in [[data], *every_cut(data)]:
        client = Client(minor_version=minor_version).feed(*reads)
        assert decoded(client.received) == (b"".join(EVENTS) + USAGE.rstrip(), True)


def test_an_empty_chunk_would_end_the_body() -> None:
    assert chunk(b"") == b""


@given(
    st.data(),
    st.lists(st.sampled_from([*EVENTS, USAGE, b": ping\n\n", DONE]), max_size=8),
    st.booleans(),
    st.integers(0, 1),
)
def test_the_body_survives_any_chunking_and_any_split(
    data: st.DataObject, events: list[bytes], drop: bool, minor_version: int
) -> None:
    """Invariant: the client decodes exactly the upstream's body, less usage-only events if asked, however it travels.

    It is left open exactly when nothing that ends a stream of choices came.
    """
    body = b"".join(events)
    sent = chunked(*[piece for piece in data.draw(cuts(body)) if piece])
    client = Client(drop=drop, minor_version=minor_version).feed(*data.draw(cuts(sent)))
    expected = b"".join(event for event in events if not (drop and event is USAGE))
    unfinished = bool({*events} & {*EVENTS}) and not {*events} & {USAGE, DONE}
    assert client.passage is not None
    assert client.passage.unfinished is unfinished
    assert decoded(client.received) == (expected, minor_version == 0 or not unfinished)
