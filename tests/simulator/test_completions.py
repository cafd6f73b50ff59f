from typing import Any

import orjson
import pytest

from services.simulator.completions import (
    ApiError,
    Prompt,
    check_length,
    read_chat,
    read_completion,
    read_tokenize,
)
from services.simulator.tokens import END_OF_MESSAGE, start_of_message, token_ids, tokens_of

USER, ASSISTANT = start_of_message("user"), start_of_message("assistant")


def chat(**fields: Any) -> bytes:
    return orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello there"}]} | fields)


def completion(**fields: Any) -> bytes:
    return orjson.dumps({"model": "m", "prompt": "Hello there"} | fields)


def test_a_chat_is_one_prompt_with_its_roles() -> None:
    read = read_chat(chat(max_tokens=7))
    assert read.prompts == (Prompt(USER + tokens_of(b"Hello there") + END_OF_MESSAGE + ASSISTANT),)
    assert read.prompts[0].tokens == 6
    assert (read.model, read.n, read.max_tokens, read.stream, read.include_usage) == ("m", 1, 7, False, False)


def test_the_longer_name_of_the_limit_wins() -> None:
    assert read_chat(chat(max_tokens=7, max_completion_tokens=9)).max_tokens == 9


def test_a_chat_without_a_limit_has_none_and_a_completion_has_16() -> None:
    assert read_chat(chat()).max_tokens is None
    assert read_completion(completion()).max_tokens == 16


def test_text_parts_count_and_pictures_do_not() -> None:
    parts = [{"type": "text", "text": "Hello"}, {"type": "image_url", "image_url": {"url": "data:..."}}]
    read = read_chat(chat(messages=[{"role": "user", "content": parts}, {"role": "assistant"}]))
    expected = USER + tokens_of(b"Hello") + END_OF_MESSAGE + ASSISTANT + END_OF_MESSAGE + ASSISTANT
    assert read.prompts[0].content == expected


def test_a_later_turn_begins_with_the_tokens_of_the_former_and_its_answer() -> None:
    first = read_chat(chat()).prompts[0].content
    answer = "the answer has any length"
    turns = [
        {"role": "user", "content": "Hello there"},
        {"role": "assistant", "content": answer},
        {"role": "user", "content": "Go on"},
    ]
    later = read_chat(chat(messages=turns)).prompts[0].content
    assert later.startswith(first + tokens_of(answer.encode()) + END_OF_MESSAGE)


def test_sampling_fields_stop_and_unknown_fields_are_accepted() -> None:
    read = read_chat(chat(temperature=0.3, stop=["x"], seed=1, tools=[], whatever={"deep": [1]}))
    assert read.n == 1


def test_stream_options_and_extensions_are_read() -> None:
    read = read_chat(
        chat(
            stream=True,
            stream_options={"include_usage": True},
            n=3,
            min_tokens=2,
            ignore_eos=True,
            cache_salt="tenant",
        )
    )
    assert (read.stream, read.include_usage, read.n) == (True, True, 3)
    assert (read.min_tokens, read.ignore_eos, read.cache_salt) == (2, True, "tenant")


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ("Hello there", [3]),
        (["Hello there", "Hi"], [3, 1]),
        ([1, 2, 3], [3]),
        ([[1, 2, 3], [4]], [3, 1]),
        ([[]], [1]),
    ],
)
def test_a_completion_takes_every_form_of_prompt(prompt: Any, tokens: list[int]) -> None:
    read = read_completion(completion(prompt=prompt))
    assert [one.tokens for one in read.prompts] == tokens


def test_equal_token_prefixes_are_equal_bytes() -> None:
    one, other = read_completion(completion(prompt=[[1, 2, 3], [1, 2, 4]])).prompts
    assert one.content[:8] == other.content[:8]
    assert one.content != other.content


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{", None),
        (b"[]", None),
        (b"\xff\xfe", None),
        (orjson.dumps({"messages": [{"role": "user", "content": "x"}]}), "model"),
        (chat(model=7), "model"),
        (chat(model=""), "model"),
        (chat(messages=[]), "messages"),
        (chat(messages="x"), "messages"),
        (chat(n=0), "n"),
        (chat(n=129), "n"),
        (chat(max_tokens=0), "max_tokens"),
        (chat(max_tokens="many"), "max_tokens"),
    ],
)
def test_a_bad_body_is_a_400_that_names_the_parameter(body: bytes, param: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        read_chat(body)
    assert (caught.value.status, caught.value.error_type) == (400, "BadRequestError")
    assert caught.value.param == param
    assert caught.value.message


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(ApiError, match="prompt"):
        read_completion(completion(prompt=[]))


def test_what_fits_the_context_passes_and_one_token_more_does_not() -> None:
    check_length(read_completion(completion(max_tokens=7)), 10)
    with pytest.raises(ApiError, match="maximum context length is 9 tokens") as caught:
        check_length(read_completion(completion(max_tokens=7)), 9)
    assert caught.value.param == "max_tokens"


def test_a_prompt_that_fills_the_context_leaves_no_room_for_an_answer() -> None:
    check_length(read_chat(chat()), 7)
    with pytest.raises(ApiError, match="6 in the prompt") as caught:
        check_length(read_chat(chat()), 6)
    assert caught.value.param is None


def test_text_and_the_ids_of_its_tokens_are_one_prompt() -> None:
    _, prompt = read_tokenize(completion())
    (by_ids,) = read_completion(completion(prompt=list(token_ids(prompt.content)))).prompts
    (by_text,) = read_completion(completion()).prompts
    assert by_ids == by_text == prompt


def test_a_conversation_is_tokenized_as_it_would_be_answered() -> None:
    model, prompt = read_tokenize(chat())
    assert (model, prompt) == ("m", read_chat(chat()).prompts[0])


def test_tokenizing_needs_no_model_but_something_to_tokenize() -> None:
    assert read_tokenize(b'{"prompt": ""}') == ("", Prompt(bytes(4)))
    with pytest.raises(ApiError) as caught:
        read_tokenize(b'{"model": "m"}')
    assert caught.value.param == "prompt"
