import struct
from typing import Any

import orjson
import pytest

from services.wire.openai.tokenize import MAX_ANSWER_TOKENS, TokenizeError, read_tokens, tokenize_request


def asked(**fields: Any) -> Any:
    request = tokenize_request(orjson.dumps(fields), "target")
    return None if request is None else orjson.loads(request)


def test_a_chat_is_asked_about_with_all_that_its_template_renders() -> None:
    messages = [{"role": "user", "content": "hi"}]
    assert asked(model="alias", messages=messages, tools=[1], temperature=0) == {
        "model": "target",
        "messages": messages,
        "tools": [1],
    }


def test_a_text_is_asked_about_as_it_is() -> None:
    assert asked(prompt="hi", max_tokens=3) == {"model": "target", "prompt": "hi"}
    assert asked(prompt="hi", add_special_tokens=False) == {
        "model": "target",
        "prompt": "hi",
        "add_special_tokens": False,
    }


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"prompt":["a","b"]}', b'{"prompt":[1]}', b'{"input":"x"}', rb'{"prompt":"\ud83d"}'],
)
def test_nothing_is_asked_about_other_bodies(body: bytes) -> None:
    assert tokenize_request(body, "target") is None


def test_a_name_that_json_cannot_carry_is_not_asked_about() -> None:
    assert tokenize_request(b'{"prompt":"x"}', "model\ud83d") is None


def test_an_answer_holds_ids() -> None:
    assert read_tokens(b'{"count":2,"max_model_len":4096,"tokens":[1,4294967295]}') == struct.pack(
        "<2I", 1, 2**32 - 1
    )


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b"{}",
        b'{"tokens":7}',
        b'{"tokens":["a"]}',
        b'{"tokens":[-1]}',
        b'{"tokens":[4294967296]}',
        b"7",
    ],
)
def test_an_answer_without_ids_is_a_typed_error(answer: bytes) -> None:
    with pytest.raises(TokenizeError):
        read_tokens(answer)


def test_an_answer_with_too_many_ids_is_refused() -> None:
    with pytest.raises(TokenizeError):
        read_tokens(b'{"tokens":[' + b"1," * MAX_ANSWER_TOKENS + b"1]}")
