from typing import Any

import orjson
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from services.simulator.answers import DONE, AnswerForm, Choice, Usage, error_document
from services.simulator.completions import ApiError
from services.simulator.tokens import word, words

USAGE = Usage(prompt_tokens=20, completion_tokens=3, cached_tokens=16)


def form(*, chat: bool) -> AnswerForm:
    return AnswerForm(chat=chat, answer_id='chatcmpl-"1"', model='m"%s', created_s=7)


def event(chunk: bytes) -> dict[str, Any]:
    assert chunk.startswith(b"data: ")
    assert chunk.endswith(b"\n\n")
    document: dict[str, Any] = orjson.loads(chunk[6:-2])
    return document


def test_a_chat_answer_is_what_the_official_client_expects() -> None:
    answer = ChatCompletion.model_validate_json(
        form(chat=True).document([Choice(3, "stop"), Choice(2, "length")], USAGE), strict=True
    )
    assert [choice.message.content for choice in answer.choices] == [words(3), words(2)]
    assert [choice.finish_reason for choice in answer.choices] == ["stop", "length"]
    assert answer.usage is not None
    assert answer.usage.total_tokens == 23
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 16


def test_a_completion_is_what_the_official_client_expects() -> None:
    answer = Completion.model_validate_json(
        form(chat=False).document([Choice(3, "length")], USAGE), strict=True
    )
    assert answer.object == "text_completion"
    assert answer.choices[0].text == words(3)


def test_a_chat_stream_names_its_role_first_and_its_reason_last() -> None:
    shape = form(chat=True)
    chunks = [
        ChatCompletionChunk.model_validate(event(chunk), strict=True)
        for chunk in (shape.opening(1), shape.token(1, 0), shape.token(1, 1), shape.ending(1, "stop"))
    ]
    assert {chunk.id for chunk in chunks} == {'chatcmpl-"1"'}
    assert {chunk.model for chunk in chunks} == {'m"%s'}
    assert {chunk.choices[0].index for chunk in chunks} == {1}
    assert [chunk.choices[0].delta.role for chunk in chunks] == ["assistant", None, None, None]
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["", word(0), word(1), None]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, None, "stop"]


def test_a_completion_stream_opens_with_its_first_token() -> None:
    shape = form(chat=False)
    assert shape.opening(0) == b""
    assert event(shape.token(0, 4))["choices"][0]["text"] == word(4)
    assert event(shape.ending(0, "length"))["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("chat", [True, False])
def test_the_usage_chunk_has_no_choices(chat: bool) -> None:
    document = event(form(chat=chat).usage(USAGE))
    assert document["choices"] == []
    assert document["usage"]["completion_tokens"] == 3


def test_the_end_mark_is_openais() -> None:
    assert DONE == b"data: [DONE]\n\n"


def test_an_error_has_the_form_of_vllm() -> None:
    document = orjson.loads(error_document(ApiError(404, "NotFoundError", "no such model", "model")))
    assert document == {
        "error": {"message": "no such model", "type": "NotFoundError", "param": "model", "code": 404}
    }
