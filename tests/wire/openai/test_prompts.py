import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.prefix.blocks import Prompt
from services.wire.openai.prompts import prompt_of, read_prompt, token_ids
from services.wire.openai.requests import BadBodyError, read_body

LONG = "The quick brown fox. " * 8_000


def body(**fields: Any) -> bytes:
    return orjson.dumps({"model": "llama", **fields})


def chat(*contents: Any, **fields: Any) -> Prompt:
    messages = [{"role": "user", "content": content} for content in contents]
    return prompt_of({"model": "llama", "messages": messages, **fields})


def image(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def text(words: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": words}


def common(first: Prompt, second: Prompt) -> int:
    pairs = zip(first.data, second.data, strict=False)
    return next(
        (at for at, (one, other) in enumerate(pairs) if one != other), min(len(first.data), len(second.data))
    )


def test_routing_reads_the_same_with_and_without_the_prompt() -> None:
    for fields in (
        {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "stream": True},
        {"messages": [{"role": "user", "content": LONG}], "stream_options": {"include_usage": True}, "n": 2},
        {"prompt": "hi"},
        {"input": ["a", "b"]},
    ):
        read, _ = read_prompt(body(**fields))
        assert read == read_body(body(**fields))


@pytest.mark.parametrize(
    "bad", [b"", b"[]", b"{}", b'{"model":7}', b'{"model":"a","model":"b"}', b"\xff\xfe"]
)
def test_a_bad_body_is_refused_in_the_same_words(bad: bytes) -> None:
    with pytest.raises(BadBodyError) as plain:
        read_body(bad)
    with pytest.raises(BadBodyError) as prompted:
        read_prompt(bad)
    assert (prompted.value.message, prompted.value.reason) == (plain.value.message, plain.value.reason)


def test_text_is_the_same_content_in_every_spelling() -> None:
    whole = chat("hello there")
    assert whole.data == chat([text("hello "), text("there")]).data
    assert whole.data == chat(["hello ", text("there", "input_text")]).data
    assert b"hello there" in whole.data
    escaped = b'{"model":"m","messages":[{"role":"user","content":"h\\u0065llo there"}]}'
    assert read_prompt(escaped)[1].data == whole.data


def test_messages_and_roles_keep_their_borders() -> None:
    spellings = {
        chat("ab", "c").data,
        chat("a", "bc").data,
        chat("abc").data,
        prompt_of({"messages": [{"role": "system", "content": "abc"}]}).data,
        prompt_of({"messages": [{"role": "user", "content": "abc", "name": "ann"}]}).data,
        prompt_of({"messages": [{"role": "user", "content": None, "tool_calls": [{"id": "abc"}]}]}).data,
        chat("abc", tools=[{"type": "function"}]).data,
        prompt_of({"prompt": "abc"}).data,
        prompt_of({"prompt": ["ab", "c"]}).data,
        prompt_of({"prompt": ["a", "bc"]}).data,
        prompt_of({"input": "abc", "instructions": "be kind"}).data,
        prompt_of({"input": "abc", "previous_response_id": "resp_1"}).data,
    }
    assert len(spellings) == 12


def test_a_conversation_that_grows_keeps_its_beginning() -> None:
    history = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    before = prompt_of({"messages": history, "tools": [{"b": 1, "a": 2}]})
    after = prompt_of(
        {"messages": [*history, {"role": "user", "content": "three"}], "tools": [{"a": 2, "b": 1}]}
    )
    assert after.data.startswith(before.data)


def test_responses_read_as_the_chat_they_stand_for() -> None:
    items = [
        {"role": "user", "content": [text("hello", "input_text")]},
        {"type": "function_call_output", "output": "42"},
    ]
    prompt = prompt_of({"input": items})
    assert prompt.data.startswith(chat("hello").data)
    assert b"42" in prompt.data


def test_images_count_and_end_what_is_shared() -> None:
    first = chat([text("what is this"), image("data:image/png;base64,AAAA"), text(LONG)])
    again = chat([text("what is this"), image("data:image/png;base64,AAAA"), text(LONG)])
    other = chat([text("what is this"), image("data:image/png;base64,AAAB"), text(LONG)])
    assert first == again
    assert b"what is this" in first.data[: common(first, other)]
    assert common(first, other) < 64
    assert len(first.data) == len(other.data)
    assert chat([image("u", detail="low")]) != chat([image("u", detail="high")])
    assert chat([{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]) != chat([])
    assert chat([{"type": "x", "y": "ab"}]) != chat([{"type": "x", "ya": "b"}])


def test_the_cache_salt_travels_beside_the_content() -> None:
    assert (chat("hi", cache_salt="s").salt, chat("hi", cache_salt=7).salt, chat("hi").salt) == ("s", "", "")
    assert chat("hi", cache_salt="s").data == chat("hi").data


def test_token_ids_are_their_digits_in_every_form() -> None:
    ids = [1, 22, 128_000]
    prompt = Prompt(b"1,22,128000", 6, True)
    assert prompt_of({"prompt": ids}) == prompt
    assert prompt_of({"input": ids}) == prompt
    assert token_ids(prompt) == ids
    assert token_ids(chat("hi")) == []
    # Several lists, or lists that hold something else, are content but no single sequence.
    assert b"1,22" in prompt_of({"prompt": [[1, 22], [3]]}).data
    assert not prompt_of({"prompt": [1, "a"]}).token_ids
    assert not prompt_of({"prompt": [[1, "a"]]}).token_ids


def test_a_large_list_of_ids_is_read_without_its_integers() -> None:
    ids = list(range(100_000))
    for spelling in (json.dumps(ids), json.dumps(ids, indent=1), json.dumps(ids, separators=(",", ":"))):
        large = b'{"cache_salt":"s","prompt": %b ,"max_tokens":3,"model":"llama"}' % spelling.encode()
        read, prompt = read_prompt(large)
        assert prompt == Prompt(",".join(map(str, ids)).encode(), 6, True, "s")
        assert (read.model, read.max_output_tokens, read.prompt_tokens) == ("llama", 3, 100_000)


@pytest.mark.parametrize(
    "fields",
    [
        {"input": [{"prompt": [1]}], "messages": []},
        {"prompt": [*range(30_000)], "input": "x"},
        {"prompt": [*range(30_000), "x"]},
        {"prompt": [1.5] * 30_000},
        {"prompt": [-1] * 30_000},
    ],
)
def test_what_only_looks_like_a_list_of_ids_is_parsed(fields: dict[str, Any]) -> None:
    large = body(padding="x" * 70_000, **fields)
    assert read_prompt(large)[1] == prompt_of(json.loads(large))


@pytest.mark.parametrize("also", [{"messages": []}, {"input": "text"}, {"more": {"prompt": 1}}])
def test_a_large_list_of_ids_beside_another_prompt_is_read_as_any_body(also: dict[str, Any]) -> None:
    for fields in ({"prompt": list(range(20_000)), **also}, {**also, "prompt": list(range(20_000))}):
        large = body(**fields)
        assert read_prompt(large)[1] == prompt_of(json.loads(large))


def test_a_list_that_never_ends_is_refused() -> None:
    with pytest.raises(BadBodyError):
        read_prompt(b'{"model":"m","prompt":[' + b"1," * 50_000)


def test_f025_halves_of_surrogate_pairs_are_content_like_any_other() -> None:
    def prompt(escapes: bytes) -> Prompt:
        return read_prompt(b'{"model":"m","prompt":"a' + escapes + b'"}')[1]

    assert prompt(rb"\ud83d") == prompt(rb"\uD83D")
    assert (
        len({prompt(escapes).data for escapes in (rb"\ud83d", rb"\ud83e", rb"\udc00", rb"\ud83d\ude00")}) == 4
    )
    read, _ = read_prompt(rb'{"model":"m","n":2,"max_tokens":3,"prompt":"\ud83d \ud83d\ude00 \\ud83d"}')
    assert (read.model, read.max_output_tokens) == ("m", 6)
    with pytest.raises(BadBodyError, match="JSON"):
        read_prompt(rb'{"model":"m\ud83d","prompt":"x"}')
    deep = chat([{"type": "x", "y": {"z": ["\ud83d"]}}])
    assert deep != chat([{"type": "x", "y": {"z": ["\ud83e"]}}])


def test_content_too_deep_to_spell_ends_the_prompt() -> None:
    deep: Any = "core"
    for _ in range(5_000):
        deep = [deep]
    prompt = prompt_of(
        {"messages": [{"role": "user", "content": "hello"}, {"role": "user", "content": [deep]}]}
    )
    assert prompt.data.startswith(chat("hello").data)


def test_numbers_that_only_the_strict_reader_takes_are_content() -> None:
    read, prompt = read_prompt(b'{"model":"m","temperature":NaN,"prompt":"hello"}')
    assert read.model == "m"
    assert b"hello" in prompt.data


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=5,
)


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(["messages", "prompt", "input", "tools", "instructions", "cache_salt"]),
        json_values
        | st.lists(
            st.dictionaries(st.sampled_from(["role", "content", "type", "text", "image_url"]), json_values)
        ),
    )
)
def test_no_body_breaks_it_and_equal_bodies_are_equal_prompts(fields: dict[str, Any]) -> None:
    """Whatever JSON stands where content is expected, the prompt is the same each time it is read."""
    raw = json.dumps({"model": "m", **fields}).encode()
    read, prompt = read_prompt(raw)
    assert read.model == "m"
    assert prompt == read_prompt(raw)[1]
    assert prompt.unit_bytes in {4, 6}
