"""Reading bodies: what is extracted, what is refused and how, and that the edit only splices."""

import contextlib
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.inference import ModelName
from services.core.units import Tokens
from services.wire.openai.requests import BadBodyError, ask_for_usage, model_list, read_body
from services.wire.status import DoorReason

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", **fields}).encode()


def refusal(text: bytes) -> BadBodyError:
    with pytest.raises(BadBodyError) as caught:
        read_body(text)
    return caught.value


def test_the_fields_routing_needs() -> None:
    read = read_body(
        body(stream=True, stream_options={"include_usage": True}, max_tokens=10, n=2, messages=[])
    )
    assert read.model == "m"
    assert read.stream
    assert read.usage_requested
    assert read.max_output_tokens == 20


def test_max_completion_tokens_wins_over_its_elder() -> None:
    assert read_body(body(max_tokens=10, max_completion_tokens=7)).max_output_tokens == 7


def test_nulls_mean_absent() -> None:
    read = read_body(body(stream=None, max_tokens=None, n=None, stream_options=None))
    assert not read.stream
    assert read.max_output_tokens is None


def test_unknown_fields_are_the_servers_business() -> None:
    assert read_body(body(guided_json={"a": [1]}, temperature="hot")).model == "m"


@pytest.mark.parametrize(
    ("text", "reason", "param"),
    [
        (b"", DoorReason.INVALID_JSON, None),
        (b"{", DoorReason.INVALID_JSON, None),
        (b"\xff\xfe{}", DoorReason.INVALID_JSON, None),
        (b'{"model":"\xff"}', DoorReason.INVALID_JSON, None),
        (b"[]", DoorReason.INVALID_JSON, None),
        (b"null", DoorReason.INVALID_JSON, None),
        (b"[" * 10_000, DoorReason.INVALID_JSON, None),
        (b'{"a":' * 500 + b"1" + b"}" * 500, DoorReason.INVALID_JSON, None),
        (b"{}", DoorReason.MISSING_PARAMETER, "model"),
        (b'{"model":7}', DoorReason.INVALID_VALUE, "model"),
        (b'{"model":null}', DoorReason.INVALID_VALUE, "model"),
        (b'{"model":""}', DoorReason.INVALID_VALUE, "model"),
        (b'{"model":["m"]}', DoorReason.INVALID_VALUE, "model"),
        (b'{"model":"' + b"x" * 300 + b'"}', DoorReason.INVALID_VALUE, "model"),
        (b'{"model":"m","stream":"yes"}', DoorReason.INVALID_VALUE, "stream"),
        (b'{"model":"m","max_tokens":-1}', DoorReason.INVALID_VALUE, "max_tokens"),
        (b'{"model":"m","max_tokens":1.5}', DoorReason.INVALID_VALUE, "max_tokens"),
        (b'{"model":"m","n":0}', DoorReason.INVALID_VALUE, "n"),
        (b'{"model":"a","model":"b"}', DoorReason.INVALID_VALUE, "model"),
        (b'{"model":"a","mod\\u0065l":"b"}', DoorReason.INVALID_VALUE, "model"),
        (b'{"mod\\u0065l":"a","model":"b"}', DoorReason.INVALID_VALUE, "model"),
    ],
)
def test_bad_bodies_are_named(text: bytes, reason: DoorReason, param: str | None) -> None:
    error = refusal(text)
    assert error.reason is reason
    assert error.param == param
    assert error.message.endswith(".")


def test_a_nested_model_key_is_not_a_repeat() -> None:
    assert read_body(body(tools=[{"model": "x"}], messages=[{"content": '"model"'}])).model == "m"


def test_an_escaped_model_key_alone_is_accepted() -> None:
    assert read_body(b'{"mod\\u0065l":"m"}').model == "m"


def test_usage_is_spliced_only_where_the_client_said_nothing() -> None:
    text = b' {"model":"m", "stream" : true, "x":"\xc3\xa9"}'
    edited = ask_for_usage(text, read_body(text))
    assert json.loads(edited) == {**json.loads(text), "stream_options": {"include_usage": True}}
    assert edited.replace(b'"stream_options":{"include_usage":true},', b"") == text
    for untouched in (body(), body(stream=True, stream_options={}), body(stream=True, stream_options=None)):
        assert ask_for_usage(untouched, read_body(untouched)) is untouched


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=5))
def test_the_edit_changes_nothing_else(fields: dict[str, Any]) -> None:
    """For any JSON body with a model, the splice keeps every other field and every other byte."""
    fields = {
        name: value for name, value in fields.items() if name not in {"stream_options", "max_tokens", "n"}
    }
    fields.pop("max_completion_tokens", None)
    text = json.dumps({**fields, "model": "m", "stream": True}).encode()
    edited = ask_for_usage(text, read_body(text))
    assert json.loads(edited) == {**json.loads(text), "stream_options": {"include_usage": True}}


plain_fields = st.fixed_dictionaries(
    {"model": st.sampled_from(["m", "", "x" * 256, "x" * 257, None, 7, "é"])},
    optional={
        "stream": st.sampled_from([True, False, None, "yes", 1]),
        "max_tokens": st.sampled_from([None, 0, 5, -1, 1.5, True, 2**70, "5"]),
        "n": st.sampled_from([None, 1, 2, 0]),
        "stream_options": st.sampled_from([None, {}, {"include_usage": True}]),
        "messages": st.sampled_from([[], [{"content": "{[" * 120}], [[]] * 120]),
    },
)


@given(plain_fields)
def test_the_short_way_reads_what_the_model_reads(fields: dict[str, Any]) -> None:
    """A body reads the same, or is refused with the same words, whether it takes the short way or is too large for it."""
    small = json.dumps(fields).encode()

    def outcome(text: bytes) -> object:
        try:
            return dataclasses.replace(read_body(text), prompt_tokens=Tokens(0))
        except BadBodyError as error:
            return (error.reason, error.message, error.param)

    assert outcome(small) == outcome(small + b" " * (1 << 16))


@given(st.binary(max_size=300))
def test_garbage_is_a_bad_body_never_an_exception(text: bytes) -> None:
    """Any bytes are either readable or raise BadBodyError."""
    with contextlib.suppress(BadBodyError):
        assert read_body(text).model


def test_the_model_list_is_openais_shape() -> None:
    assert json.loads(model_list([ModelName("a")])) == {
        "object": "list",
        "data": [{"id": "a", "object": "model", "created": 0, "owned_by": "gir"}],
    }
