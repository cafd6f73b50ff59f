import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.wire.openai.requests import BadBodyError, read_body
from services.wire.openai.rewrite import HELD_BYTES_MAX, ModelBack, with_model

texts = st.text(alphabet=st.sampled_from('model"\\{}[]:, \n\u00e9\U0001f600'), max_size=12)
keys = st.one_of(st.sampled_from(["model", "m", "models", 'x"model', "model\\"]), texts)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=12,
)
models = st.text(
    alphabet=st.characters(codec="utf-8", exclude_categories=("Z", "C")), min_size=1, max_size=24
)


@given(
    st.dictionaries(keys, values, max_size=4), models, models, st.booleans(), st.integers(0, 4), st.booleans()
)
def test_only_the_model_changes(
    fields: dict[str, Any], model: str, other: str, ascii_only: bool, place: int, spelt: bool
) -> None:
    """Invariant: the spliced body parses to the original with another model, and only that string's bytes differ."""
    fields.pop("model", None)
    pairs: list[tuple[str, Any]] = list(fields.items())
    place = min(place, len(pairs))
    pairs.insert(place, ("model", model))

    def members(between: list[tuple[str, Any]]) -> list[str]:
        return [f"{json.dumps(k, ensure_ascii=ascii_only)} : {json.dumps(v)}" for k, v in between]

    key = '"\\u006Dod\\u0065l"' if spelt else '"model"'
    before = "{" + "".join(f"{each}," for each in members(pairs[:place])) + key + " :\n"
    after = "".join(f",{each}" for each in members(pairs[place + 1 :])) + "}"
    body = (before + json.dumps(model, ensure_ascii=ascii_only) + after).encode()
    read_body(body)
    spliced = with_model(body, other)
    assert json.loads(spliced) == {**json.loads(body), "model": other}
    assert spliced == before.encode() + json.dumps(other).encode() + after.encode()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model":"a","n":1.0}', b'{"model":"new","n":1.0}'),
        (b'{"n":1e2 ,"model" : "a" }', b'{"n":1e2 ,"model" : "new" }'),
        (b'{"x":{"model":"a"},"model":"a"}', b'{"x":{"model":"a"},"model":"new"}'),
        (b'{"x":"model","model":"a"}', b'{"x":"model","model":"new"}'),
        (b'{"x":["model",{"model":"a"}],"model":"a"}', b'{"x":["model",{"model":"a"}],"model":"new"}'),
        (b'{"x\\"model":"a","model":"b"}', b'{"x\\"model":"a","model":"new"}'),
        (b'{"mod\\u0065l":"a"}', b'{"mod\\u0065l":"new"}'),
        (b'{"x\\"model":"a","\\u006dodel":"b"}', b'{"x\\"model":"a","\\u006dodel":"new"}'),
        (b'{"model":"a\\"b\\\\"}', b'{"model":"new"}'),
        (b'{"m":"}{","model":"a"}', b'{"m":"}{","model":"new"}'),
    ],
)
def test_the_top_level_model_is_found(body: bytes, expected: bytes) -> None:
    assert with_model(body, "new") == expected


def test_a_name_is_escaped() -> None:
    assert with_model(b'{"model":"a"}', 'b"\\\u00e9') == b'{"model":"b\\"\\\\\\u00e9"}'


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (b'{"model":"a","model":"b"}', "names 2 models"),
        (b'{"model":"a","\\u006dodel":"b"}', "names 2 models"),
        (b'{"x":1}', "names 0 models"),
        (b'{"x":{"model":"a"},"y":{"model":"b"}}', "names 0 models"),
        (b'{"model":7}', "no string"),
    ],
)
def test_what_a_read_body_never_is_has_no_splice(body: bytes, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        with_model(body, "new")
    with pytest.raises(BadBodyError):
        read_body(body)


def back(*chunks: bytes, target: str = "llama-v2", client: str = "llama") -> bytes:
    renamer = ModelBack(target, client)
    return b"".join([*(renamer.feed(chunk) for chunk in chunks), renamer.finish()])


JSON = b'{"id":"1","object":"chat.completion","model" : "llama-v2","choices":[{"text":"\\"model\\":\\"llama-v2\\""}]}'
EVENTS = (
    b'data: {"id":"1","model":"llama-v2","choices":[{"delta":{"content":"\\"model"}}]}\n\n'
    b'event: response.created\r\ndata: {"response":{"model":"llama-v2"}}\r\n\r\n'
    b': comment "mod\n\n'
    b"data: [DONE]\n\n"
)


def test_an_answer_and_its_events_name_the_clients_model() -> None:
    assert back(JSON) == JSON.replace(b' : "llama-v2"', b' : "llama"', 1)
    assert back(EVENTS) == EVENTS.replace(b'"llama-v2"', b'"llama"')


@pytest.mark.parametrize("answer", [JSON, EVENTS], ids=["json", "events"])
def test_chunk_borders_do_not_matter(answer: bytes) -> None:
    whole = back(answer)
    assert all(back(answer[:cut], answer[cut:]) == whole for cut in range(len(answer) + 1))
    assert back(*(answer[i : i + 1] for i in range(len(answer)))) == whole


@given(
    st.dictionaries(keys, values, max_size=4),
    models,
    models,
    st.booleans(),
    st.lists(st.integers(0, 400), max_size=6),
)
def test_only_members_of_the_target_are_renamed(
    fields: dict[str, Any], target: str, client: str, ascii_only: bool, cuts: list[int]
) -> None:
    """Invariant: an answer cut anywhere parses to the original with every model that is the target renamed."""
    answer = {"m": fields, "model": target, "l": [{"model": target}, {"model": target + "x"}]}
    text = json.dumps(answer, ensure_ascii=ascii_only).encode()

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: client if k == "model" and v == target else renamed(v) for k, v in value.items()}
        return [renamed(item) for item in value] if isinstance(value, list) else value

    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    chunks = [text[a:b] for a, b in itertools.pairwise(places)]
    assert json.loads(back(*chunks, target=target, client=client)) == renamed(answer)


@pytest.mark.parametrize(
    "answer",
    [
        b'{"model":"other"}',
        b'{"model":"llama-v2x"}',
        b'{"model":null,"models":"llama-v2"}',
        b'{"model":"\\ud800"}',
        b'{"model":"\\x"}',
        b"plain text without quotes",
        b'{"text":"\\"model":"llama-v2"',
        b'{"model":"model"}',
        b"",
    ],
)
def test_anything_else_passes_byte_for_byte(answer: bytes) -> None:
    assert back(answer) == answer
    assert back(*(answer[i : i + 1] for i in range(len(answer)))) == answer


def test_other_spellings_of_the_target_are_known() -> None:
    for spelt in (rb'"org\/l\u00e9"', '"org/l\u00e9"'.encode(), rb'"org/l\u00E9"'):
        assert back(b'{"model":' + spelt + b"}", target="org/l\u00e9", client="a") == b'{"model":"a"}'


def test_whole_events_are_never_held_back_and_what_is_held_is_bounded() -> None:
    renamer = ModelBack("t", "c")
    event = b'data: {"model":"t","choices":[]}\n\n'
    assert renamer.feed(event) == event.replace(b'"t"', b'"c"')
    assert renamer.feed(b'x "model": "t') == b"x "
    assert renamer.feed(b'"') == b'"model": "c"'
    long = b'"model":"' + b"a" * HELD_BYTES_MAX
    assert renamer.feed(long) == long
    assert renamer.feed(b'"model":"' + b"a" * (HELD_BYTES_MAX - 9)) == b""
    assert renamer.finish() == b'"model":"' + b"a" * (HELD_BYTES_MAX - 9)
    assert renamer.finish() == b""
