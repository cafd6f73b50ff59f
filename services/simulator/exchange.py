"""One OpenAI request in the pod: its sequences in the engine and its answer on the wire.

Turns engine events into chunks or into one document, and a vanished client into aborts. Apart from the
server, which decides whether a request gets this far.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.adapters.http.responder import Header, Responder
from services.simulator.answers import DONE, AnswerForm, Choice, Usage
from services.simulator.completions import Generation
from services.simulator.driver import EngineDriver
from services.simulator.engine import Engine
from services.simulator.events import EngineRequest, Finished, FinishReason, FirstToken
from services.simulator.tokens import answer_content, block_hashes, natural_answer_tokens

EVENT_STREAM: Header = (b"content-type", b"text/event-stream; charset=utf-8")
JSON: Header = (b"content-type", b"application/json")


@dataclass(frozen=True, slots=True)
class Ticket:
    """Names of one request: `key` decides lengths and failures, `arrival` is unique within the pod."""

    key: str
    arrival: int


class Exchange:
    """Answers one request through `responder`; start it with `begin`. `lora` is the adapter it needs."""

    def __init__(
        self,
        generation: Generation,
        lora: str,
        form: AnswerForm,
        ticket: Ticket,
        driver: EngineDriver,
        responder: Responder,
        headers: Sequence[Header],
    ) -> None:
        self._generation = generation
        self._form = form
        self._driver = driver
        self._responder = responder
        self._headers = headers
        self._sequences = _sequences(generation, lora, ticket, driver.engine)
        self._positions = [0] * len(self._sequences)
        self._ends: dict[int, Finished] = {}
        self._chunks: list[bytes] = []

    def begin(self) -> None:
        """Submit every sequence; a stream's head goes out at once, as vLLM's does."""
        self._responder.on_disconnect = self._abandon
        if self._generation.stream:
            self._responder.start(200, [EVENT_STREAM, *self._headers])
        for index, sequence in enumerate(self._sequences):
            self._driver.submit(sequence, self, index)

    def first_token(self, index: int, event: FirstToken) -> None:  # noqa: ARG002 -- the count comes with the end
        """Open the choice and write its first token."""
        if self._generation.stream:
            self._chunks.append(self._form.opening(index))
            self.token(index)

    def token(self, index: int) -> None:
        """Write one token of a choice."""
        self._chunks.append(self._form.token(index, self._positions[index]))
        self._positions[index] += 1

    def finished(self, index: int, event: Finished) -> None:
        """End the choice and, with the last one, the answer."""
        if event.reason is FinishReason.ABORT:
            return
        self._ends[index] = event
        if self._generation.stream:
            self._chunks.append(self._form.ending(index, event.reason.value))
        if len(self._ends) == len(self._sequences) and not self._generation.stream:
            choices = [
                Choice(self._ends[i].output_tokens, self._ends[i].reason.value)
                for i in range(len(self._sequences))
            ]
            body = self._form.document(choices, self._usage())
            self._responder.respond(200, [JSON, *self._headers], body)

    def flush(self) -> None:
        """Send what was written since the last flush in one piece."""
        if not self._generation.stream:
            return
        over = len(self._ends) == len(self._sequences)
        if over:
            if self._generation.include_usage:
                self._chunks.append(self._form.usage(self._usage()))
            self._chunks.append(DONE)
        self._responder.write_nowait(b"".join(self._chunks))
        self._chunks.clear()
        if over:
            self._responder.end()

    def _abandon(self) -> None:
        for index, sequence in enumerate(self._sequences):
            if index not in self._ends:
                self._driver.abort(sequence.request_id)

    def _usage(self) -> Usage:
        # A prompt is counted once, however many answers it gets; its cache hit is that of its first.
        prompts = self._generation.prompts
        firsts = [self._ends[index * self._generation.n] for index in range(len(prompts))]
        return Usage(
            prompt_tokens=sum(prompt.tokens for prompt in prompts),
            completion_tokens=sum(end.output_tokens for end in self._ends.values()),
            cached_tokens=sum(end.cached_tokens for end in firsts),
        )


def _sequences(generation: Generation, lora: str, ticket: Ticket, engine: Engine) -> list[EngineRequest]:
    profile = engine.profile
    # The base model and its aliases are one model to the cache; an adapter changes every key and value.
    salt = f"{lora}\x1f{generation.cache_salt}"
    sequences: list[EngineRequest] = []
    for prompt in generation.prompts:
        room = profile.max_model_len - prompt.tokens
        limit = room if generation.max_tokens is None else generation.max_tokens
        for _ in range(generation.n):
            index = len(sequences)
            natural = max(natural_answer_tokens(f"{ticket.key}/{index}"), generation.min_tokens)
            ends_by_itself = natural < limit and not generation.ignore_eos
            tokens = natural if ends_by_itself else limit
            content: bytes = b""
            hashes: tuple[bytes, ...] = ()
            if profile.prefix_caching:
                content, hashes = _cacheable(prompt.content, tokens, profile.block_size, salt)
            sequences.append(
                EngineRequest(
                    request_id=f"{ticket.arrival}/{index}",
                    prompt_tokens=prompt.tokens,
                    output_tokens=tokens,
                    block_hashes=hashes,
                    natural_end=ends_by_itself,
                    streamed=generation.stream,
                    lora=lora,
                    # Only a journal quotes it, and a long prompt is half a megabyte.
                    content=content if engine.has_journal else b"",
                    cache_salt=generation.cache_salt,
                )
            )
    return sequences


def _cacheable(
    prompt: bytes, answer_tokens: int, block_size: int, salt: str
) -> tuple[bytes, tuple[bytes, ...]]:
    """Return the tokens of prompt and answer that can be cached, and the hashes of their full blocks.

    The last token of an answer is never fed back, so its keys and values are never computed.
    """
    content = prompt + answer_content(answer_tokens - 1)
    return content, block_hashes(content, block_size, salt)
