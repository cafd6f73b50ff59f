"""One ext_proc stream of a data plane: read, decided, answered, and its pick ended with it.

The machine says what to do; here it is done, in its order, by the one task that reads the stream. What belongs to
all streams is `ext_proc`'s.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import grpc

from services.adapters.grpc.failures import Context
from services.adapters.ports import Clock
from services.adapters.system.tasks import TaskScope
from services.core.outcomes import DropReason
from services.core.pods.table import Pod
from services.core.units import Duration, Instant, seconds
from services.endpoint_picker.doors.http import DRAINED_HEADER
from services.endpoint_picker.entry import EntryRefusedError
from services.endpoint_picker.intake import Intake
from services.endpoint_picker.lifecycle import Dropped, Lifecycle, Running
from services.endpoint_picker.outcomes import Outcome
from services.endpoint_picker.pick import Pick
from services.wire.control_headers import BadHeaderError
from services.wire.ext_proc.events import (
    Ask,
    Begun,
    Decision,
    Effect,
    End,
    Finished,
    Headers,
    Screen,
    Served,
)
from services.wire.ext_proc.messages import decode, encode
from services.wire.ext_proc.metadata import TRACE_PARENT
from services.wire.ext_proc.session import Session
from services.wire.hand_off import HandOff
from services.wire.model_headers import model_headers
from services.wire.openai.errors import ErrorAnswer, error_answer
from services.wire.openai.requests import BadBodyError
from services.wire.openai.usage import read_usage
from services.wire.status import DoorReason

HELD_BYTES_MAX = 512 << 20
"""Bodies of all streams together that wait for their end or for an endpoint; beyond it new ones are refused."""
HELD_RETRY_AFTER = seconds(1)

_TOO_MANY = 429
_SERVER_ERROR = 500


class StreamOwner(Protocol):
    """What a stream needs of the door. `held_bytes`: of bodies, over all its streams."""

    life: Lifecycle
    clock: Clock
    tasks: TaskScope
    held_bytes: int

    def enter(self, headers: Headers) -> HandOff | None:
        """Check who sent this and whether anybody is let in. Raises `EntryRefusedError`."""

    def intake(self, ask: Ask, body: bytes) -> Intake:
        """Return what the life cycle takes in."""

    def anywhere(self, ask: Ask) -> Decision:
        """Return endpoints for a request without a body."""

    def unwatch(self, running: Running) -> None:
        """The request goes on without its stream."""


@dataclass(slots=True, eq=False)
class Stream:
    """One stream: its machine, its pick, and the task that reads it."""

    service: StreamOwner
    context: Context
    session: Session
    running: Running | None = None
    _asked: bytes = b""
    _answer: Decision | Dropped | None = None
    _waiting: "asyncio.Future[None] | None" = None
    _task: "asyncio.Task[Any] | None" = None
    _over: bool = False
    _reading: bool = False
    _held: int = 0

    async def run(self) -> None:
        """Read until either side ends the stream."""
        service, session = self.service, self.session
        self._task = asyncio.current_task()
        while (data := await self._read()) is not grpc.aio.EOF:
            effects = session.receive(decode(data), service.clock.now())
            self._count_held()
            if service.held_bytes > HELD_BYTES_MAX:
                effects = self._refuse(
                    DropReason.SATURATED, "Too many request bodies wait here.", HELD_RETRY_AFTER
                )
                self._count_held()
            if effects and await self._perform(effects):
                return

    async def _read(self) -> Any:
        """Return the next message as bytes, or `EOF`: also when this side has ended the stream meanwhile."""
        self._reading = True
        try:
            return await self.context.read()
        except asyncio.CancelledError:
            if not self._over or self._task is None or self._task.uncancel():
                raise
            return grpc.aio.EOF
        finally:
            self._reading = False

    def expire(self, now: Instant) -> None:
        """Say what the machine has to say about the time; a stream that is busy is not waiting for anything."""
        deadline = self.session.deadline
        if deadline is not None and deadline <= now and self._reading:
            self._speak(self.session.expired(now))

    def _speak(self, effects: Sequence[Effect]) -> None:
        """Perform effects that no message asked for while the stream is being read. A read cannot be taken back."""
        if effects:
            self.service.tasks.spawn(self._perform_beside(effects), "ext_proc")

    async def _perform_beside(self, effects: Sequence[Effect]) -> None:
        try:
            over = await self._perform(effects)
        except (grpc.RpcError, grpc.aio.BaseError):
            return  # The data plane has ended the stream; its reader knows.
        if over and self._reading and self._task is not None:
            self._over = True
            self._task.cancel()

    def close(self) -> None:
        """The stream is over: so is its pick, unless the request goes on without it."""
        self._noted(self.session.closed())
        if self.running is not None:
            self.service.life.end(self.running, Outcome.CANCELLED)
        self._count_held()

    async def _perform(self, effects: Sequence[Effect]) -> bool:
        """Perform effects in their order; True when the stream is to end."""
        left = self._noted(effects)
        while left:
            effect = left.pop(0)
            match effect:
                case Ask():
                    left += self._noted(await self._ask(effect))
                    self._count_held()
                case Screen():
                    refusal = self._screen(effect)
                    if refusal:
                        left = refusal
                case Begun():
                    if self.running is not None:
                        self.service.life.committed(self.running)
                case Served():
                    self._served(effect.endpoint)
                case Finished():
                    pass
                case End():
                    return True
                case _:
                    await self.context.write(encode(effect))
        return False

    def _noted(self, effects: Sequence[Effect]) -> list[Effect]:
        """Note how the request ends before anything is written: the last piece may make the data plane cut the stream."""
        for effect in effects:
            if isinstance(effect, Finished):
                self._finish(effect)
            elif isinstance(effect, End):
                self._leave()
        return list(effects)

    def _screen(self, screen: Screen) -> list[Effect]:
        try:
            self.service.enter(screen.headers)
        except EntryRefusedError as error:
            return self._refuse(error.reason, error.message, error.retry_after)
        return []

    async def _ask(self, ask: Ask) -> list[Effect]:
        """Ask for an endpoint and wait for it; a stream that ends meanwhile cancels this."""
        try:
            if ask.body is None:
                return self.session.decided(self.service.anywhere(ask))
            intake = self.service.intake(ask, ask.body)
        except EntryRefusedError as error:
            return self._refuse(error.reason, error.message, error.retry_after)
        except BadBodyError as error:
            return self._immediate(error_answer(error.reason, error.message, param=error.param))
        except BadHeaderError as error:
            return self._immediate(error_answer(DoorReason.INVALID_VALUE, str(error), param=error.header))
        self._asked = ask.body
        self.running = self.service.life.start(intake, self)
        if self._answer is None:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        answer, self._answer, self._asked = self._answer, None, b""
        if isinstance(answer, Decision):
            return self.session.decided(answer)
        assert answer is not None  # noqa: S101 -- the future is resolved by an answer alone
        return self._refuse(answer.reason, answer.message, answer.retry_after)

    # Answer

    def picked(self, request: Running, pick: Pick, body: bytes) -> None:
        """The request has its pod."""
        self.running = request
        resolved, told = request.resolved, request.told
        headers = () if resolved is None else model_headers(resolved)
        if told is not None and told.span is not None:
            headers = (*headers, (TRACE_PARENT, told.span.traceparent.encode()))
        changed = body is not self._asked
        self._answer = Decision(
            (pick.pod.address, *[pod.address for pod in pick.fallbacks]),
            body if changed else None,
            None if resolved is None or not changed else (resolved.target_model, resolved.client_model),
            headers,
            self.service.life.scheduler.scores(pick),
        )
        self._wake()

    def dropped(self, dropped: Dropped) -> None:
        """The request has none."""
        self.running = None
        self._answer = dropped
        self._wake()

    def evicted(self, dropped: Dropped) -> None:
        """The pod is needed for work that matters more; the answer has not begun."""
        running, self.running = self.running, None
        if running is not None:
            self.service.life.end(running, Outcome.CANCELLED)
            self._speak(self._refuse(dropped.reason, dropped.message, dropped.retry_after))

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # Ends

    def _served(self, endpoint: str) -> None:
        """Count the request where it went: the data plane may have used a fallback."""
        running = self.running
        if running is None or running.pick is None or running.pick.pod.address == endpoint:
            return
        pods: tuple[Pod, ...] = running.pick.fallbacks
        served = next((pod for pod in pods if pod.address == endpoint), None)
        if served is not None:
            self.service.life.move(running, served)

    def _finish(self, finished: Finished) -> None:
        running, self.running = self.running, None
        if running is None:
            return
        if not finished.complete:
            outcome = Outcome.CANCELLED
        elif finished.status >= _SERVER_ERROR:
            outcome = Outcome.GATEWAY_ERROR
        else:
            outcome = Outcome.SATURATED if finished.status == _TOO_MANY else Outcome.SUCCEEDED
        self.service.life.end(running, outcome, read_usage(finished.usage))

    def _leave(self) -> None:
        running, self.running = self.running, None
        if running is not None:
            self.service.unwatch(running)

    def _refuse(
        self, reason: DropReason | DoorReason, message: str, retry_after: Duration | None
    ) -> list[Effect]:
        answer = error_answer(reason, message, retry_after=retry_after)
        if reason is DropReason.DRAINED:
            answer = replace(answer, headers=(*answer.headers, DRAINED_HEADER))
        return self._immediate(answer)

    def _immediate(self, answer: ErrorAnswer) -> list[Effect]:
        return self.session.refused(answer, self.service.clock.now())

    def _count_held(self) -> None:
        held = self.session.held_bytes
        self.service.held_bytes += held - self._held
        self._held = held
