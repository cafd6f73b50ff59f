"""The official `openai` client against a door of the running fleet: as it comes, nothing adapted."""

from collections.abc import AsyncIterator, Iterator

import openai
import pytest
from openai.types.chat import ChatCompletionUserMessageParam

from tests.scenarios.processes.fleet import ProcessFleet
from tests.scenarios.processes.plan import EU, JURISDICTIONS, LARGE, SMALL

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(240)]

ASK: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "Say something."}]
TOKENS = 12


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that this machine uses for other hosts knows nothing of its loopback."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def base_url(fleet: ProcessFleet) -> str:
    return f"http://127.0.0.1:{fleet.door(EU)}/v1"


@pytest.fixture(params=[0, openai.DEFAULT_MAX_RETRIES], ids=["no retries", "default retries"])
def client(fleet: ProcessFleet, request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=base_url(fleet), api_key=fleet.token, max_retries=request.param) as client:
        yield client


@pytest.fixture
async def async_client(fleet: ProcessFleet) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=base_url(fleet), api_key=fleet.token) as client:
        yield client


@pytest.mark.parametrize("model", [SMALL, LARGE])
def test_it_asks_and_is_answered(client: openai.OpenAI, model: str) -> None:
    answer = client.chat.completions.create(model=model, messages=ASK, max_tokens=TOKENS)
    assert answer.model == model
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert 0 < answer.usage.completion_tokens <= TOKENS
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_it_streams(client: openai.OpenAI) -> None:
    """Without `include_usage` no usage chunk comes, with it exactly one, last and without choices."""
    with client.chat.completions.create(model=SMALL, messages=ASK, max_tokens=TOKENS, stream=True) as stream:
        chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")
    assert all(chunk.usage is None for chunk in chunks)
    with client.chat.completions.create(
        model=SMALL,
        messages=ASK,
        max_tokens=TOKENS,
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        chunks = list(stream)
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].choices == []


def test_it_completes_text_and_lists_models(client: openai.OpenAI) -> None:
    text = client.completions.create(model=SMALL, prompt="Once", max_tokens=TOKENS)
    assert text.choices[0].text
    with client.completions.create(model=SMALL, prompt="Once", max_tokens=TOKENS, stream=True) as stream:
        assert "".join(chunk.choices[0].text for chunk in stream)
    assert {model.id for model in client.models.list()} >= {SMALL, LARGE}
    assert {model.object for model in client.models.list()} == {"model"}


def test_the_request_id_comes_back(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=SMALL, messages=ASK, max_tokens=1, extra_headers={"x-request-id": "mine-1"}
    )
    assert raw.headers["x-request-id"] == "mine-1"
    assert raw.headers["x-gir-region"] in JURISDICTIONS
    assert raw.headers["x-gir-request-id"] != "mine-1"


def test_errors_are_those_of_the_client(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="nobody", messages=ASK)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model=SMALL, messages=ASK, extra_body={"model": 7})
    assert bad.value.param == "model"
    with pytest.raises(openai.AuthenticationError) as stranger:
        client.with_options(api_key="nonsense").chat.completions.create(model=SMALL, messages=ASK)
    assert stranger.value.code == "invalid_api_key"


async def test_the_async_client_asks_streams_and_lists(async_client: openai.AsyncOpenAI) -> None:
    answer = await async_client.chat.completions.create(model=SMALL, messages=ASK, max_tokens=TOKENS)
    assert answer.choices[0].message.content
    async with await async_client.chat.completions.create(
        model=LARGE, messages=ASK, max_tokens=TOKENS, stream=True
    ) as stream:
        chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert {model.id async for model in async_client.models.list()} >= {SMALL, LARGE}
    with pytest.raises(openai.NotFoundError):
        await async_client.chat.completions.create(model="nobody", messages=ASK)
