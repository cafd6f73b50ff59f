"""The response phase: what is observed, what is held, and what passes untouched."""

import pytest

from services.wire.ext_proc.answers import Watch, media_type
from services.wire.ext_proc.events import (
    BodyMode,
    Effect,
    Finished,
    Modes,
    ResponseBody,
    ResponseHeaders,
    StreamResponseBody,
    StreamRules,
)
from tests.wire.ext_proc.playbook import expect

OBSERVE = StreamRules()
DUPLEX = BodyMode.FULL_DUPLEX_STREAMED
START = """
    >> request-headers :method=POST
    << screen
    >> request-body 'x' end
    << ask 'x'
"""
PLAIN = (
    START
    + """
    >> decide a:1
    << request-headers set content-length=1 to a:1
    << request-body 'x' end
"""
)
RENAMED = (
    START
    + """
    >> decide a:1 'y' target client
    << request-headers set content-length=1 to a:1
    << request-body 'y' end
"""
)


def test_events_go_on_as_they_come_and_usage_is_read() -> None:
    """Split events are not held: nothing changes in them."""
    expect(
        PLAIN
        + """
        >> response-headers :status=200 content-type=text/event-stream
        << begun
        << response-headers set x-went-into-resp-headers=true
        >> response-body 'data: {"cho'
        << response-body 'data: {"cho'
        >> response-body 'ices":[]}\\n\\ndata: {"usage":{"total_tokens":7}}\\n\\n'
        << response-body 'ices":[]}\\n\\ndata: {"usage":{"total_tokens":7}}\\n\\n'
        >> response-body '' end
        << response-body '' end
        << finished 200 complete {"total_tokens":7}
        << end
        """,
        OBSERVE,
    )


def test_the_clients_model_name_goes_back_into_events_wherever_they_are_split() -> None:
    expect(
        RENAMED
        + """
        >> response-headers :status=200 content-type=Text/Event-Stream;charset=UTF-8 content-length=9
        << begun
        << response-headers set x-went-into-resp-headers=true remove content-length
        >> response-body 'data: {"model":"tar'
        << response-body 'data: {'
        >> response-body 'get"}\\n\\ndata: [DONE]'
        << response-body '"model":"client"}\\n\\ndata: [DONE]'
        >> response-body '\\n\\n' end
        << response-body '\\n\\n' end
        << finished 200 complete
        << end
        """,
        OBSERVE,
    )


def test_the_clients_model_name_goes_back_into_json_and_only_the_name_waits() -> None:
    expect(
        RENAMED
        + """
        >> response-headers :status=200 content-type=application/json
        << begun
        << response-headers set x-went-into-resp-headers=true remove content-length
        >> response-body '{"id":1,"model":"tar'
        << response-body '{"id":1,'
        >> response-body 'get",'
        << response-body '"model":"client",'
        >> response-body '"usage":{"total_tokens":3}}'
        << response-body '"usage":{"total_tokens":3}}'
        >> response-body '' end
        << response-body '' end
        << finished 200 complete {"total_tokens":3}
        << end
        """,
        OBSERVE,
    )


def test_trailers_let_go_what_waits() -> None:
    expect(
        RENAMED
        + """
        >> response-headers :status=200 content-type=application/json
        << begun
        << response-headers set x-went-into-resp-headers=true remove content-length
        >> response-body '{"model":"targ'
        << response-body '{'
        >> response-trailers
        << response-body '"model":"targ'
        << response-trailers
        << finished 200 complete
        << end
        """,
        OBSERVE,
    )


def test_a_large_piece_goes_back_in_several() -> None:
    expect(
        RENAMED
        + """
        >> response-headers :status=200 content-type=application/json
        << begun
        << response-headers set x-went-into-resp-headers=true remove content-length
        >> response-body 124001*'x' end
        << response-body 62000 bytes
        << response-body 62000 bytes
        << response-body 'x' end
        << finished 200 complete
        << end
        """,
        OBSERVE,
    )


def test_a_coded_answer_passes_untouched_and_unread() -> None:
    expect(
        RENAMED
        + """
        >> response-headers :status=200 content-type=application/json content-encoding=gzip
        << begun
        << response-headers set x-went-into-resp-headers=true
        >> response-body '"model":"target"' end
        << response-body '"model":"target"' end
        << finished 200 complete
        << end
        """,
        OBSERVE,
    )


def test_a_head_may_be_the_whole_answer() -> None:
    expect(
        PLAIN
        + """
        >> response-headers :status=204 end
        << begun
        << response-headers set x-went-into-resp-headers=true
        << finished 204 complete
        << end
        """,
        OBSERVE,
    )


def test_a_stream_that_ends_inside_an_answer_is_cut() -> None:
    expect(
        PLAIN
        + """
        >> response-headers :status=200 content-type=text/event-stream
        << begun
        << response-headers set x-went-into-resp-headers=true
        >> closed
        << finished 200 cut
        """,
        OBSERVE,
    )


def test_a_stream_that_ends_before_its_answer_is_cut() -> None:
    expect(PLAIN + ">> closed\n<< finished 0 cut", OBSERVE)


def test_the_served_endpoint_is_told_and_mirrored_for_conformance_only() -> None:
    script = (
        PLAIN
        + """
        >> response-headers :status=200 served=10.0.0.7:8000 end
        << begun
        << served 10.0.0.7:8000
        << response-headers set x-went-into-resp-headers=true{mirrored}
        << finished 200 complete
        << end
        """
    )
    expect(script.format(mirrored=""), OBSERVE)
    expect(
        script.format(mirrored=" set x-conformance-test-served-endpoint=10.0.0.7:8000"),
        StreamRules(conformance=True),
    )


def test_without_bodies_the_end_of_the_stream_is_the_end_of_the_answer() -> None:
    expect(
        PLAIN
        + """
        >> response-headers :status=429 content-type=application/json
        << begun
        << response-headers set x-went-into-resp-headers=true
        >> closed
        << finished 429 complete
        """,
        OBSERVE,
        Modes(DUPLEX, BodyMode.NONE),
    )


def test_in_the_other_modes_every_piece_is_answered_once() -> None:
    expect(
        RENAMED
        + """
        >> response-headers :status=200 content-type=application/json
        << begun
        << response-headers set x-went-into-resp-headers=true remove content-length
        >> response-body '"model":'
        << response-body ''
        >> response-body '"target"}' end
        << response-body '"model":"client"}'
        << finished 200 complete
        << end
        """,
        OBSERVE,
        Modes(DUPLEX, BodyMode.STREAMED),
    )
    expect(
        PLAIN
        + """
        >> response-headers :status=200 content-type=application/json
        << begun
        << response-headers set x-went-into-resp-headers=true
        >> response-body '{}' end
        << response-body as it is
        << finished 200 complete
        << end
        """,
        OBSERVE,
        Modes(DUPLEX, BodyMode.BUFFERED),
    )


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"text/event-stream; charset=utf-8", b"text/event-stream"),
        (b"Text/Event-Stream;charset=UTF-8", b"text/event-stream"),
        (b" application/json ", b"application/json"),
        (b"", b""),
    ],
)
def test_media_types_are_parsed(value: bytes, kind: bytes) -> None:
    assert media_type(value) == kind


def body_of(effects: list[Effect]) -> bytes:
    return b"".join(each.data for each in effects if isinstance(each, StreamResponseBody))


def test_every_split_of_an_answer_gives_the_same_answer() -> None:
    """Invariant: wherever the pieces are cut, the client reads the same bytes and usage is the same."""
    whole = b'data: {"model":"target","x":1}\r\n\r\ndata: {"usage":{"total_tokens":5}}\n\ndata: [DONE]'
    right = whole.replace(b"target", b"client")
    for cut in range(len(whole) + 1):
        watch = Watch(OBSERVE, DUPLEX, ("target", "client"))
        effects = watch.head(ResponseHeaders(((b":status", b"200"), (b"content-type", b"text/event-stream"))))
        effects += watch.body(ResponseBody(whole[:cut]))
        effects += watch.body(ResponseBody(whole[cut:], True))
        assert body_of(effects) == right
        assert effects[-1] == Finished(200, True, b'{"total_tokens":5}')
