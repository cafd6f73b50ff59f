"""The one path of a request through a picker, whichever door it came by.

A door hands in an `Intake` and is called back with a pod, or with why there is none; it then says how the request
went. The order of the steps is here: model, prefix, queue, pick, end. What each step decides is its own file's.
Callbacks, no task per request: most are answered before `start` returns.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from services.adapters.ports import Clock
from services.core.admission.tickets import Ticket
from services.core.models.routing import ModelFault, ResolvedModel
from services.core.outcomes import DropReason, Explanation, Rejected
from services.core.pods.table import Pod
from services.core.prefix.blocks import Prompt
from services.core.scheduling.signals import Signals
from services.core.units import Duration, Instant, ms
from services.endpoint_picker.declared import Declared
from services.endpoint_picker.flow_control import FlowControl
from services.endpoint_picker.intake import Intake
from services.endpoint_picker.outcomes import Outcome
from services.endpoint_picker.pick import LocalScheduler, Pick
from services.endpoint_picker.sessions import SessionTable, pod_of_token
from services.endpoint_picker.telling import Telling, Told
from services.wire.openai.rewrite import with_model
from services.wire.openai.usage import NO_USAGE, Usage
from services.wire.status import DoorReason

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Dropped:
    """Why a request gets no pod; `retry_after` only where waiting can help."""

    reason: DropReason | DoorReason
    message: str
    retry_after: Duration | None = None
    explanation: Explanation | None = None


class Answer(Protocol):
    """Whoever waits for the pick: called exactly once with one of the first two, unless it ended the request first."""

    def picked(self, request: "Running", pick: Pick, body: bytes) -> None:
        """The request has a pod, to which `body` is to be sent."""

    def dropped(self, dropped: Dropped) -> None:
        """The request has none."""

    def evicted(self, dropped: Dropped) -> None:
        """After `picked`, and before `committed` was said: the request must end now, its pod is needed.

        Whoever is called ends the request, as for any other end.
        """


class Matched(Protocol):
    """What the prefix index knows of one prompt."""

    @property
    def matched(self) -> dict[str, int]:
        """Leading blocks held, by pod id."""

    @property
    def total_blocks(self) -> int:
        """Blocks of the prompt."""

    @property
    def block_tokens(self) -> int:
        """Tokens of one block."""


class Prefixes(Protocol):
    """The prefix index as a request uses it."""

    def match(self, pool: str, model: str, prompt: Prompt, found: Callable[[Matched], None]) -> None:
        """Look a prompt up and call `found` once: at once for a short prompt, later for one worth slicing."""

    def sent(self, pod: str, matched: Matched) -> None:
        """The prompt went to `pod`, which holds all of its blocks from now on."""


@dataclass(slots=True, eq=False)
class Running:
    """One request's stay. Fields are None until the step that fills them; `ended` is final."""

    intake: Intake
    answer: Answer
    started_at: Instant
    resolved: ResolvedModel | None = None
    prefix: Matched | None = None
    ticket: Ticket | None = None
    pick: Pick | None = None
    told: Told | None = None
    ended: bool = False


@dataclass(slots=True, eq=False)
class Lifecycle:
    """Takes requests in and sees them end. `running` counts those between `start` and `end`."""

    scheduler: LocalScheduler
    declared: Declared
    flow: FlowControl
    telling: Telling
    clock: Clock
    prefixes: Prefixes | None = None
    sessions: SessionTable | None = None
    running: int = field(default=0, init=False)

    def start(self, intake: Intake, answer: Answer) -> Running:
        """Begin a request; the answer may come before this returns."""
        request = Running(intake, answer, self.clock.now())
        self.running += 1
        self._step(request, lambda: self._begin(request))
        return request

    def _begin(self, request: Running) -> None:
        intake = request.intake
        inference = intake.inference
        draw_by = inference.session or inference.request_id
        resolved = self.declared.models.resolve(inference.model, draw_by, intake.controls.model_rewrite)
        if isinstance(resolved, ModelFault):
            self._refuse(request, _not_found(intake))
            return
        request.resolved = resolved
        if intake.controls.objective is not None:
            priority = self.declared.priority(resolved.pool, intake.controls.objective)
            intake = request.intake = replace(intake, inference=replace(inference, priority=priority))
        request.told = self.telling.begin(intake, resolved, request.started_at)
        if self.prefixes is not None and intake.prompt is not None:
            model = resolved.adapter or resolved.target_model
            self.prefixes.match(
                resolved.pool,
                model,
                intake.prompt,
                lambda found: self._step(request, lambda: self._match(request, found)),
            )
        else:
            self._admit(request, resolved)

    def move(self, request: Running, pod: Pod) -> None:
        """The request goes to a fallback, because its pod could not be connected to."""
        if request.pick is not None and not request.ended:
            self.scheduler.move(request.pick, pod)
            self._placed(request, pod, self.clock.now())

    def committed(self, request: Running) -> None:
        """The answer has begun to reach the caller."""
        if request.told is not None:
            request.told.first_byte(self.clock.now())
        self.out_of_reach(request)

    def out_of_reach(self, request: Running) -> None:
        """Nothing here could stop the request any more; it is not evicted from now on."""
        if request.ticket is not None and not request.ended:
            self.flow.committed(request.ticket)

    def end(
        self, request: Running, outcome: Outcome, usage: Usage = NO_USAGE, response_bytes: int | None = None
    ) -> None:
        """The request is over, at whatever step it was; a second call changes nothing."""
        if request.ended:
            return
        now = self.clock.now()
        self._leave(request, now)
        if request.told is not None:
            request.told.ended(now, outcome, usage, response_bytes)

    # The steps, in their order

    def _match(self, request: Running, found: Matched) -> None:
        request.prefix = found
        if not request.ended and request.resolved is not None:
            self._admit(request, request.resolved)

    def _admit(self, request: Running, resolved: ResolvedModel) -> None:
        intake = request.intake
        inference = intake.inference
        slo = intake.controls.ttft_slo_ms
        ticket = request.ticket = Ticket(
            inference.request_id,
            intake.flow,
            resolved.pool,
            inference.priority,
            request.started_at,
            inference.prompt_tokens or 1,
            len(intake.body),
            ttl=self._left_of(request),
            slo_ttft=None if slo is None else Duration(round(slo * 1_000_000)),
        )
        if self.flow.admit(
            ticket,
            self.clock.now(),
            lambda: self._step(request, lambda: self._pick(request, resolved)),
            lambda reason, message, retry_after: self._step(
                request, lambda: self._refused(request, Dropped(reason, message, retry_after))
            ),
        ):
            self._pick(request, resolved)

    def _left_of(self, request: Running) -> Duration | None:
        """Return how long after its start the caller still wants the answer; None: for ever."""
        deadline_ms = request.intake.deadline_ms
        if deadline_ms is None:
            return None
        waited = self.clock.now() - request.started_at
        return Duration(waited + ms(deadline_ms - self.clock.wall_ms()))

    def _pick(self, request: Running, resolved: ResolvedModel) -> None:
        intake = request.intake
        now = self.clock.now()
        inference = intake.inference
        if inference.model != resolved.base_model:
            inference = replace(inference, model=resolved.base_model)
        signals = self._signals(request, resolved, now)
        told = request.told
        if told is not None and told.span is not None:
            among = intake.among if intake.among is not None else self.scheduler.table.in_pool(resolved.pool)
            told.scheduling(len(among))
        picked = self.scheduler.pick(
            inference,
            now,
            pool=resolved.pool,
            signals=signals,
            among=intake.among,
            tried=intake.tried,
            verbose=intake.explain,
        )
        if isinstance(picked, Rejected):
            self._drop(
                request, Dropped(picked.reason, picked.message, picked.retry_after, picked.explanation)
            )
            return
        request.pick = picked
        if intake.controls.if_available and not signals.matched.get(picked.pod.id):
            self._refuse(request, Dropped(DropReason.CACHE_MISS, "No endpoint holds a part of this prompt."))
            return
        self._placed(request, picked.pod, now)
        if told is not None:
            told.picked(now, picked)
        renamed = resolved.target_model != resolved.client_model
        body = with_model(intake.body, resolved.target_model) if renamed and intake.body else intake.body
        request.answer.picked(request, picked, body)
        # Answers stream for minutes; what was asked is not needed for as long.
        request.intake = replace(intake, body=b"", prompt=None)

    def _placed(self, request: Running, pod: Pod, now: Instant) -> None:
        """The request is at `pod`: the session stays there, and the prompt will be in its cache."""
        session = request.intake.inference.session
        if self.sessions is not None and session is not None:
            self.sessions.bind(session, pod.id, now)
        if self.prefixes is not None and request.prefix is not None:
            self.prefixes.sent(pod.id, request.prefix)

    def _signals(self, request: Running, resolved: ResolvedModel, now: Instant) -> Signals:
        intake, prefix = request.intake, request.prefix
        session = None
        if self.sessions is not None:
            if intake.controls.session_token is not None:
                session = pod_of_token(intake.controls.session_token)
            elif intake.inference.session is not None:
                session = self.sessions.pod(intake.inference.session, now)
        return Signals(
            matched={} if prefix is None else prefix.matched,
            total_blocks=0 if prefix is None else prefix.total_blocks,
            block_tokens=0 if prefix is None else prefix.block_tokens,
            adapter=resolved.adapter,
            session=session,
            prompt_tokens=intake.inference.prompt_tokens,
            ttft_slo_ms=intake.controls.ttft_slo_ms,
            headers=intake.headers,
        )

    # Ends

    def _step(self, request: Running, step: Callable[[], None]) -> None:
        """Take a step of a request; a fault of it is that request's alone, whoever's turn it is here."""
        try:
            step()
        except Exception:  # noqa: BLE001 -- whatever is wrong with one request, the others' turns must go on
            _LOG.exception("request %s failed", request.intake.inference.request_id)
            if not request.ended:
                self._refuse(request, Dropped(DoorReason.INTERNAL, "The request failed here."))

    def _refused(self, request: Running, dropped: Dropped) -> None:
        """Flow control refuses, or takes back what it let through."""
        if request.pick is None:
            self._refuse(request, dropped)
        else:
            request.answer.evicted(dropped)

    def _refuse(self, request: Running, dropped: Dropped) -> None:
        """End a request that the scheduler, which counts its own refusals, did not refuse."""
        self.scheduler.counters.rejections[dropped.reason.value] += 1
        self._drop(request, dropped)

    def _drop(self, request: Running, dropped: Dropped) -> None:
        now = self.clock.now()
        self._leave(request, now)
        if request.told is not None:
            request.told.dropped(now, dropped.reason)
        request.answer.dropped(dropped)

    def _leave(self, request: Running, now: Instant) -> None:
        request.ended = True
        self.running -= 1
        if request.pick is not None:
            self.scheduler.complete(request.pick)
        if request.ticket is not None:
            self.flow.ended(request.ticket, now)


def _not_found(intake: Intake) -> Dropped:
    """Return the refusal of a name that leads nowhere.

    A router that hands a request over decided that this cluster serves it: to it this cluster is unable, and the
    model may well exist elsewhere.
    """
    model = intake.inference.model
    if intake.handed_over:
        return Dropped(DropReason.NO_ENDPOINTS, f"No ready endpoint can serve '{model}' right now.")
    return Dropped(
        DropReason.MODEL_NOT_FOUND, f"The model '{model}' does not exist or you do not have access to it."
    )
