"""Observers of bodies: first event, usage, in-band errors, end mark, dropped usage events, at every split."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.wire.http1 import observer as module
from services.wire.http1.observer import EventObserver, PlainObserver
from tests.wire.http1.splits import cuts, every_cut

CONTENT = (
    '{"id":"1","choices":[{"index":0,"delta":{"content":"你好 😀 [DONE] \\"usage\\": {1} error"}}]}'.encode()
)
USAGE = b'{"id":"1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":99,"d":{"c":1}}}'
USAGE_OBJECT = b'{"prompt_tokens":3,"completion_tokens":99,"d":{"c":1}}'
STREAM = b": ping\n\ndata: " + CONTENT + b"\n\ndata: " + USAGE + b"\n\ndata: [DONE]\n\n"


def observe(*reads: bytes, drop_usage: bool = False) -> tuple[EventObserver, bytes]:
    observer = EventObserver(drop_usage=drop_usage)
    passed = b"".join([observer.feed(read) for read in reads if read])
    return observer, passed + observer.finish()


def seen(observer: EventObserver) -> tuple[object, ...]:
    return (
        observer.first_event,
        observer.error,
        observer.usage_event,
        observer.usage_object(),
        observer.done,
        observer.data_lines,
    )


def test_a_stream_is_read() -> None:
    observer, passed = observe(STREAM)
    assert seen(observer) == (CONTENT, None, USAGE, USAGE_OBJECT, True, 3)
    assert passed == STREAM


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_f043_f044_every_split_gives_the_same_bytes_and_findings(line_end: bytes) -> None:
    data = STREAM.replace(b"\n", line_end)
    whole, _ = observe(data)
    assert whole.usage_object() == USAGE_OBJECT
    for reads in every_cut(data):
        observer, passed = observe(*reads)
        assert passed == data
        assert seen(observer) == seen(whole)


def test_f044_usage_without_its_blank_line_is_counted() -> None:
    data = STREAM.partition(b"\n\ndata: [DONE]")[0]
    observer, passed = observe(data[:-40], data[-40:-9], data[-9:])
    assert (observer.usage_object(), observer.done, passed) == (USAGE_OBJECT, False, data)


def test_f044_garbage_at_the_end_is_relayed() -> None:
    observer, passed = observe(STREAM + b'data: {"usage": {"prom\xff')
    assert passed == STREAM + b'data: {"usage": {"prom\xff'
    assert observer.usage_object() is None


def test_f047_a_comment_is_neither_the_first_event_nor_the_end() -> None:
    observer, passed = observe(b": keepalive\n\n")
    assert (observer.ready, passed) == (False, b": keepalive\n\n")
    observer, _ = observe(b": keepalive\n\ndata: {a}\n\ndata: {b}\n\n")
    assert (observer.first_event, observer.data_lines) == (b"{a}", 2)


def test_half_an_event_is_held_until_it_is_whole() -> None:
    observer = EventObserver()
    assert observer.feed(b"data: a\n\ndata: b") == b"data: a\n\n"
    assert observer.holding
    assert observer.feed(b"c\n\n") == b"data: bc\n\n"
    assert not observer.holding


def test_whole_events_pass_as_the_object_they_came_in() -> None:
    for data in (STREAM, STREAM.replace(b"\n", b"\r\n")):
        assert EventObserver().feed(data) is data


def test_an_event_of_several_lines_is_joined() -> None:
    observer, _ = observe(b"event: x\ndata: a\nid: 1\ndata:b\n\n")
    assert observer.first_event == b"a\nb"


@pytest.mark.parametrize(
    ("data", "payload"),
    [
        (b'data: {"error": {"message": "m"}}\n\n', b'{"error": {"message": "m"}}'),
        (b'data:{"error":"m"}\n\n', b'{"error":"m"}'),
        (b'event: error\ndata: {"message": "m"}\n\n', b'{"message": "m"}'),
        (b"event:error\r\ndata: m\r\n\r\n", b"m"),
        (b"event: error\n\n", b""),
    ],
)
def test_errors_in_band_are_seen_first_or_later(data: bytes, payload: bytes) -> None:
    first, _ = observe(data)
    assert first.error == payload
    later, _ = observe(b"data: " + CONTENT + b"\n\n" + data)
    assert later.error == payload


@pytest.mark.parametrize(
    "data",
    [
        b'data: {"error": null, "choices": []}\n\n',
        b'data: {"choices":[{"delta":{"content":"\\"error\\": {"}}]}\n\n',
        b"event: errors\ndata: x\n\n",
        b": error\n\n",
    ],
)
def test_the_word_error_is_no_error(data: bytes) -> None:
    assert observe(data)[0].error is None


def test_the_first_error_is_kept() -> None:
    observer, _ = observe(b'data: {"error":"1"}\n\n', b'data: {"error":"2"}\n\n')
    assert observer.error == b'{"error":"1"}'


def test_f053_cumulative_usage_is_never_summed() -> None:
    events = b"".join(b'data: {"usage":{"completion_tokens":%d}}\n\n' % n for n in (1, 4, 5, 99, 99))
    assert observe(events)[0].usage_object() == b'{"completion_tokens":99}'


def test_usage_null_in_every_event_is_not_usage() -> None:
    null = b'data: {"choices":[{}],"usage":null}\n\n'
    observer, _ = observe(null * 3 + b"data: " + USAGE + b"\n\n" + null)
    assert observer.usage_object() == USAGE_OBJECT


def test_f062_usage_of_another_type_is_unknown() -> None:
    for value in (b'"oops"', b"[]", b"1", b"null", b'{"a":', b'{"a":}', b"{" * 5000):
        assert observe(b'data: {"usage":' + value + b"}\n\n")[0].usage_object() is None


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_f052_only_usage_only_events_are_left_out(line_end: bytes) -> None:
    data = STREAM.replace(b"\n", line_end)
    without = data.replace(b"data: " + USAGE + line_end * 2, b"")
    for reads in [[data], *every_cut(data)]:
        observer, passed = observe(*reads, drop_usage=True)
        assert passed == without
        assert observer.usage_object() == USAGE_OBJECT


def test_f052_usage_beside_content_stays() -> None:
    data = b'data: {"choices":[{"index":0}],"usage":{"a":1}}\n\ndata: {"choices":[],"x":1}\n\n'
    for line_end in (b"\n", b"\r\n"):
        cased = data.replace(b"\n", line_end)
        assert observe(cased, drop_usage=True)[1] == cased


def test_f052_usage_split_over_data_lines_is_left_out_too() -> None:
    data = b'data: {"choices":[],\ndata: "usage":{"a":1}}\n\ndata: x\n\n'
    observer, passed = observe(data, drop_usage=True)
    assert (passed, observer.usage_object()) == (b"data: x\n\n", b'{"a":1}')


def test_usage_without_choices_stays_when_usage_is_dropped() -> None:
    data = b'data: {"usage":{"a":1}}\n\n'
    assert observe(data, drop_usage=True)[1] == data


def test_an_endless_event_is_relayed_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVENT_BYTES_MAX", 64)
    observer = EventObserver()
    passed = b"".join(observer.feed(b"x" * 10) for _ in range(20))
    assert len(passed) >= 140
    assert passed + observer.finish() == b"x" * 200


PIECES = st.sampled_from(
    [
        b"data: " + CONTENT,
        b"data: " + USAGE,
        b"data: [DONE]",
        b": ping",
        b'data: {"error":{}}',
        b"\n",
        b"\n\n",
        b"\r\n",
        b"\r",
    ]
)


@given(st.data(), st.lists(PIECES | st.binary(max_size=6), max_size=12), st.booleans())
def test_findings_do_not_depend_on_splits(data: st.DataObject, pieces: list[bytes], drop_usage: bool) -> None:
    """Invariant: bytes passed and findings depend on the stream, never on how reads cut it; without dropping, all pass."""
    stream = b"".join(pieces)
    whole, whole_passed = observe(stream, drop_usage=drop_usage)
    observer, passed = observe(*data.draw(cuts(stream)), drop_usage=drop_usage)
    assert (seen(observer), passed) == (seen(whole), whole_passed)
    if not drop_usage:
        assert passed == stream


def plain(*reads: bytes) -> PlainObserver:
    observer = PlainObserver()
    assert not observer.ready
    for read in reads:
        assert observer.feed(read) is read
    assert observer.finish() == b""
    assert not observer.holding
    return observer


def test_f059_json_under_another_name_is_only_relayed() -> None:
    observer = plain(STREAM)
    assert (observer.ready, observer.done, observer.error) == (True, True, None)


@pytest.mark.parametrize("kept", [0, 64 * 1024])
def test_f055_usage_is_found_once_at_either_end(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES_MAX", kept)
    vector = b'"data":[' + b"0.25," * 200 + b"1]"
    for body in (
        b"{" + vector + b',"usage" : ' + USAGE_OBJECT + b"}",
        b'{"usage":' + USAGE_OBJECT + b"," + vector + b"}",
    ):
        assert json.loads(body)
        for reads in every_cut(body):
            assert plain(*reads).usage_object() == USAGE_OBJECT


def test_f055_memory_is_bounded_for_large_bodies() -> None:
    read = b"0.25," * 13_000
    observer = plain(b'{"data":[', *[read] * 50, b'1],"usage":' + USAGE_OBJECT + b"}")
    assert observer.usage_object() == USAGE_OBJECT
    assert observer._pieces is None
    assert len(observer._carry) < 32


def test_bodies_without_usage_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plain(b'{"a":1,"usage":null}').usage_object() is None
    assert plain().usage_object() is None
    monkeypatch.setattr(module, "KEPT_BYTES_MAX", 0)
    assert plain(b'{"a":1,"usage":null}').usage_object() is None
    assert plain(b'{"usage":{"a":1').usage_object() is None


@pytest.mark.parametrize("word", [b"error", b"[DONE]"])
def test_a_word_repeated_in_one_line_has_the_line_tried_once(word: bytes) -> None:
    """The cost of an event is linear in its size, whatever words it repeats: an event may have a megabyte."""

    class Counted:
        tried = 0

        def match(self, _text: bytes, _start: int) -> None:
            self.tried += 1

    line = Counted()
    text = b"data: " + word * 50 + b"\ndata: " + word + b"\n\n: none\n"
    assert module._find_line(text, word, line) == -1  # type: ignore[arg-type]  # counts what a pattern is asked
    assert line.tried == 2


def test_usage_repeated_in_one_event_has_the_event_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of an event is linear in its size, whatever keys it repeats."""
    looked: list[bytes] = []
    judge = module._is_usage_only

    def counted(block: bytes) -> bool:
        looked.append(block)
        return judge(block)

    monkeypatch.setattr(module, "_is_usage_only", counted)
    events = [
        b'data: {"choices":[],' + b'"usage":{},' * 50 + b'"x":1}\n\n',
        b'data: {"choices":[{}],"usage":{}}\n\n',
    ]
    _, passed = observe(b"".join(events), drop_usage=True)
    assert looked == events
    assert passed == events[1]


@pytest.mark.parametrize(
    ("usage", "seen"),
    [
        (b'{"a": 1, "b_c":null,"d": 20}', True),
        (b'{"a":{"b":1},"c":2}', True),
        (b'{"a":"}","c":2}', True),
        (b'{"a":1.5}', True),
        (b'{"a":-1}', True),
        (b"{}", True),
        (b'{"a":01}', False),
        (b'{"a":1,}', False),
        (b'{"a":1 2}', False),
        (b'{"a":1,"b"', False),
    ],
)
def test_flat_and_other_usage_objects_are_cut_alike(usage: bytes, seen: bool) -> None:
    assert plain(b'{"usage":%b}' % usage).usage_object() == (usage if seen else None)
