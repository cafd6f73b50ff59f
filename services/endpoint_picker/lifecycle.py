"""The one path of a request through a picker, whichever door it came by.

A door reads what its wire says into an `Intake` and is called back with a pod, or with why there is none; it
then says how the request went. The order of the steps is here: model, priority, prefix, queue, pick, end. What
each step decides is its own file's. Callbacks, no task per request: most are answered before `start` returns.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol

from services.adapters.ports import Clock
from services.core.inference import InferenceRequest
from services.core.outcomes import DropReason, Explanation, Rejected
from services.core.pods.table import Pod
from services.core.units import Duration
from services.endpoint_picker.outcomes import Outcome
from services.endpoint_picker.pick import LocalScheduler, Pick


@dataclass(frozen=True, slots=True)
class Intake:
    """What a door knows of one request.

    `inference.model` is the name the client gave. `body` is the JSON as it came, empty where the wire carries
    none. `among` are the only addresses the pick may come from (a gateway's subset hint; None: no hint).
    `tried` are ids of pods that it already failed on.
    """

    inference: InferenceRequest
    body: bytes = b""
    among: Collection[str] | None = None
    tried: Collection[str] = ()
    explain: bool = False


@dataclass(frozen=True, slots=True)
class Dropped:
    """Why a request gets no pod; `retry_after` only where waiting can help."""

    reason: DropReason
    message: str
    retry_after: Duration | None = None
    explanation: Explanation | None = None


class Answer(Protocol):
    """Whoever waits for the pick: called exactly once with one of the two, unless the request was ended first."""

    def picked(self, request: "Running", pick: Pick, body: bytes) -> None:
        """The request has a pod, to which `body` is to be sent."""

    def dropped(self, dropped: Dropped) -> None:
        """The request has none."""


@dataclass(slots=True, eq=False)
class Running:
    """One request's stay. `pick` is None until it has a pod."""

    intake: Intake
    answer: Answer
    pick: Pick | None = None
    ended: bool = False


@dataclass(slots=True, eq=False)
class Lifecycle:
    """Takes requests in and sees them end. `running` counts those between `start` and `end`."""

    scheduler: LocalScheduler
    clock: Clock
    running: int = field(default=0, init=False)

    def start(self, intake: Intake, answer: Answer) -> Running:
        """Begin a request; the answer may come before this returns."""
        request = Running(intake, answer)
        self.running += 1
        self._pick(request)
        return request

    def move(self, request: Running, pod: Pod) -> None:
        """The request goes to a fallback, because its pod could not be connected to."""
        if request.pick is not None and not request.ended:
            self.scheduler.move(request.pick, pod)

    def end(self, request: Running, outcome: Outcome) -> None:
        """The request is over, at whatever step it was; a second call changes nothing."""
        if request.ended:
            return
        request.ended = True
        self.running -= 1
        if request.pick is not None:
            self.scheduler.complete(request.pick, outcome)

    def _pick(self, request: Running) -> None:
        intake = request.intake
        among = None if intake.among is None else self.scheduler.at_addresses(intake.among)
        picked = self.scheduler.pick(
            intake.inference, self.clock.now(), among=among, tried=intake.tried, verbose=intake.explain
        )
        if isinstance(picked, Rejected):
            self._drop(
                request, Dropped(picked.reason, picked.message, picked.retry_after, picked.explanation)
            )
            return
        request.pick = picked
        request.answer.picked(request, picked, intake.body)

    def _drop(self, request: Running, dropped: Dropped) -> None:
        request.ended = True
        self.running -= 1
        request.answer.dropped(dropped)
