"""Workloads of the picker's benchmark in virtual time: who arrives when, with which prompt.

A workload is a seeded function of nothing else, so that every profile is given the very same requests. Whether a
conversation's next turn may come depends on its last answer, which the world tells. No engine and no picker here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from services.core.units import NS_PER_S, Instant
from services.simulator.tokens import BYTES_PER_TOKEN, answer_content


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests of `rate` a second for `seconds`, arriving by chance (Poisson).

    Each belongs to one of `conversations` that are open at once and have `turns` turns; a turn's prompt is all that
    was said before and `question_tokens` more, its answer has `answer_tokens` or up to three quarters more or less:
    with answers of one length engines keep step and every profile is judged by that. A conversation begins with
    `opening_tokens`: in the share `shared` of them the same, otherwise its own.
    """

    name: str
    rate: float
    seconds: float
    shared: float = 0.0
    opening_tokens: int = 0
    conversations: int = 1
    turns: int = 1
    question_tokens: int = 200
    answer_tokens: int = 128
    seed: int = 3


SHARED = Workload(
    "shared",
    rate=100.0,
    seconds=30.0,
    shared=0.8,
    opening_tokens=2048,
    conversations=400,
    turns=6,
)
"""One prefix of 2,048 tokens begins 80 % of all requests, as one assistant's instructions do; users go on talking."""
ONE_SHOT = Workload("one_shot", rate=100.0, seconds=30.0, shared=0.8, opening_tokens=2048, conversations=400)
"""The same prefix in as many requests, and nobody comes back: every pod soon holds all that can be reused."""
UNIFORM = Workload("uniform", rate=100.0, seconds=30.0, question_tokens=1024, conversations=400)
"""No two prompts share anything: there is nothing to be gained but an even load."""


@dataclass(slots=True, eq=False)
class Conversation:
    """What was said so far, as the simulator's tokens. `busy` until its answer is there."""

    said: bytes
    turns_left: int
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """One request: its prompt in whole tokens, and how many its answer will have."""

    number: int
    at: Instant
    prompt: bytes
    answer_tokens: int
    conversation: Conversation


@dataclass(slots=True)
class Arrivals:
    """Makes the turns of one workload in their order. `answered` must be called when an answer is complete."""

    workload: Workload
    start: Instant
    _random: Random = field(init=False)
    _open: list[Conversation] = field(default_factory=list)
    _begun: int = 0
    _shared: bytes = b""

    def __post_init__(self) -> None:
        """Open all conversations."""
        workload = self.workload
        self._random = Random(workload.seed)  # noqa: S311 -- a seeded workload, not a secret
        self._shared = self._tokens(workload.opening_tokens)
        # Conversations begin at all turns, or the first minute would be one of beginnings alone.
        for number in range(workload.conversations):
            self._open.append(self._begin(1 + number % workload.turns))

    def __iter__(self) -> Iterator[Turn]:
        """Yield every turn; prompts are made when they are due, from what was answered by then."""
        workload, random = self.workload, self._random
        at, number = float(self.start), 0
        end = self.start + workload.seconds * NS_PER_S
        while True:
            at += random.expovariate(workload.rate) * NS_PER_S
            place = random.randrange(len(self._open))
            question = self._tokens(workload.question_tokens)
            spread = workload.answer_tokens * 3 // 4
            answer = workload.answer_tokens + random.randint(-spread, spread)
            if at >= end:
                return
            conversation = self._take(place)
            prompt = conversation.said + question
            yield Turn(number, Instant(round(at)), prompt, answer, conversation)
            number += 1

    def answered(self, turn: Turn) -> None:
        """The answer is there: the conversation may go on, or ends."""
        conversation = turn.conversation
        conversation.said = turn.prompt + answer_content(turn.answer_tokens)
        conversation.turns_left -= 1
        conversation.busy = False

    def _take(self, place: int) -> Conversation:
        """Return the conversation at `place`; one that still waits or is over makes room for a new one."""
        conversation = self._open[place]
        if conversation.busy or not conversation.turns_left:
            conversation = self._open[place] = self._begin(self.workload.turns)
        conversation.busy = True
        return conversation

    def _begin(self, turns: int) -> Conversation:
        workload = self.workload
        own = self._tokens(workload.opening_tokens)
        self._begun += 1
        # By count and not by chance: a small number of conversations has the share exactly.
        shared = int(self._begun * workload.shared) > int((self._begun - 1) * workload.shared)
        return Conversation(self._shared if shared else own, turns)

    def _tokens(self, count: int) -> bytes:
        return self._random.randbytes(count * BYTES_PER_TOKEN)
