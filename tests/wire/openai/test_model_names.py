"""Model names spliced into bodies and back out of answers, every other byte as it was."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.wire.openai.model_names import ModelBack, with_model
from services.wire.openai.requests import BadBodyError, read_body


@pytest.mark.parametrize(
    ("body", "right"),
    [
        (b'{"model":"m"}', b'{"model":"new"}'),
        (b' { "b" : 1, "model" : "m" , "z":[{}] }', b' { "b" : 1, "model" : "new" , "z":[{}] }'),
        (b'{"x":{"model":"inner"},"model":"m"}', b'{"x":{"model":"inner"},"model":"new"}'),
        (b'{"x":"model","model":"m"}', b'{"x":"model","model":"new"}'),
        (b'{"x":"say \\"model\\":\\"y\\"","model":"m"}', b'{"x":"say \\"model\\":\\"y\\"","model":"new"}'),
        (b'{"mod\\u0065l":"m","y":[{"model":1}]}', b'{"mod\\u0065l":"new","y":[{"model":1}]}'),
        (b'{"model":"a\\"b\\\\"}', b'{"model":"new"}'),
    ],
)
def test_only_the_value_changes(body: bytes, right: bytes) -> None:
    assert with_model(body, "new") == right


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"x":{"model":"m"}, "y":"model"}', b'{"model":3}'])
def test_a_body_without_model_is_a_mistake_of_the_caller(body: bytes) -> None:
    if body == b'{"x":{"model":"m"}, "y":"model"}':
        assert body.count(b'"model"') == 2
    with pytest.raises(ValueError, match="no top-level model"):
        with_model(body, "new")


def test_names_are_escaped() -> None:
    assert json.loads(with_model(b'{"model":"m"}', 'a"b\n\u00e9')) == {"model": 'a"b\n\u00e9'}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just("model"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4) | st.just("model"), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    others=st.dictionaries(st.text(max_size=5).filter(lambda key: key != "model"), JSON, max_size=4),
    model=st.text(min_size=1, max_size=8),
    new=st.text(min_size=1, max_size=8),
    spaced=st.booleans(),
    escaped=st.booleans(),
)
def test_any_body_that_reads_keeps_everything_else(
    others: dict[str, object], model: str, new: str, spaced: bool, escaped: bool
) -> None:
    """Invariant: the document differs in its model alone, and in size by the two names' difference."""
    document = {**others, "model": model}
    body = json.dumps(document, indent=1 if spaced else None, ensure_ascii=escaped).encode("utf-8", "replace")
    try:
        read_body(body)
    except BadBodyError:
        return
    rewritten = with_model(body, new)
    assert json.loads(rewritten) == {**json.loads(body), "model": new}


@pytest.mark.parametrize(
    ("data", "right"),
    [
        (b'{"model":"target"}', b'{"model":"client"}'),
        (b'data: {"model" : "target","x":"target"}\n\n', b'data: {"model" : "client","x":"target"}\n\n'),
        (b'{"model":"target-2","model":"x-target"}', b'{"model":"target-2","model":"x-target"}'),
        (b'{"text":"\\"model\\":\\"target\\""}', b'{"text":"\\"model\\":\\"target\\""}'),
    ],
)
def test_the_clients_name_goes_back(data: bytes, right: bytes) -> None:
    assert ModelBack("target", "client").apply(data) == right


def test_both_spellings_of_a_name_outside_ascii_go_back() -> None:
    back = ModelBack("mod\u00e8le", "client")
    assert back.apply('{"model":"mod\u00e8le"}'.encode()) == b'{"model":"client"}'
    assert back.apply(b'{"model":"mod\\u00e8le"}') == b'{"model":"client"}'
