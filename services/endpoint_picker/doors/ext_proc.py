"""ext_proc over gRPC: where Envoy and the gateways built on it ask for an endpoint, one stream per request.

What is said when is `wire/ext_proc`'s, which endpoint is the life cycle's. Here the two meet: streams are read,
effects performed, and every stream's pick ends with it. The raw bytes of messages pass through, so that gRPC
parses nothing on its own.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import grpc

from services.adapters.grpc.failures import Context, guard_unary
from services.adapters.grpc.reading import Handler
from services.adapters.grpc.server import Door
from services.adapters.ports import Clock
from services.core.outcomes import DropReason
from services.core.pods.table import Pod
from services.core.units import Duration, Instant, seconds
from services.endpoint_picker.doors.http import DRAINED_HEADER
from services.endpoint_picker.entry import Entry, EntryRefusedError
from services.endpoint_picker.intake import Intake, Reception
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
    StreamRules,
)
from services.wire.ext_proc.messages import SERVICE, decode, encode
from services.wire.ext_proc.session import Session
from services.wire.ext_proc.subset import Subset
from services.wire.hand_off import HEADER, HandOff
from services.wire.model_headers import model_headers
from services.wire.openai.errors import ErrorAnswer, error_answer
from services.wire.openai.requests import BadBodyError
from services.wire.openai.usage import read_usage
from services.wire.status import DoorReason

HELD_BYTES_MAX = 512 << 20
"""Bodies of all streams together that wait for their end or for an endpoint; beyond it new ones are refused."""
HELD_RETRY_AFTER = seconds(1)
UNWATCHED_FOR = seconds(1)
"""How long a request counts as in flight whose end the data plane will not tell: by then, with the default of
five scrapes a second, its pod's own numbers show it."""

HEALTH_NAMES = (SERVICE.full_name, "inference-extension")
"""Names that gateways and the conformance suite's manifests probe."""
ENVELOPE_BYTES = 1 << 20
"""What a message holds beside a buffered body: headers and metadata."""

_HAND_OFF = HEADER.encode()
_TOO_MANY = 429
_SERVER_ERROR = 500


@dataclass(slots=True, eq=False)
class ProcessorService:
    """The servicer. `expire` is called from time to time; `light` is cleared to hold every stream (a black hole)."""

    entry: Entry
    reception: Reception
    life: Lifecycle
    clock: Clock
    rules: StreamRules = field(default_factory=StreamRules)
    light: asyncio.Event = field(default_factory=asyncio.Event)
    held_bytes: int = 0
    streams_total: int = 0
    _streams: "set[_Stream]" = field(default_factory=set)
    _unwatched: list[tuple[Instant, Running]] = field(default_factory=list)
    _turn: int = 0
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Begin in the light, with nothing running."""
        self.light.set()
        self._idle.set()

    def door(self) -> Door:
        """Return what a gRPC server is given to serve this."""

        def register(server: grpc.aio.Server) -> None:
            handler: Handler = grpc.stream_stream_rpc_method_handler(guard_unary(self.process))
            server.add_registered_method_handlers(SERVICE.full_name, {"Process": handler})

        return Door(SERVICE, register, HEALTH_NAMES, self.rules.body_bytes_max + ENVELOPE_BYTES)

    @property
    def streams(self) -> int:
        """Streams open now."""
        return len(self._streams)

    async def process(self, _requests: AsyncIterator[bytes], context: Context) -> None:
        """Serve one stream."""
        await self.light.wait()
        stream = _Stream(self, context, Session(self.rules))
        self.streams_total += 1
        self._streams.add(stream)
        self._idle.clear()
        try:
            await stream.run()
        finally:
            self._streams.discard(stream)
            stream.close()
            if not self._streams:
                self._idle.set()

    async def finished(self) -> None:
        """Wait until no stream is left; a stopped gRPC server may still run the last steps of some."""
        await self._idle.wait()

    def expire(self, now: Instant) -> None:
        """Refuse bodies that do not end, and let go of requests whose end nobody tells."""
        for stream in tuple(self._streams):
            stream.expire(now)
        kept = 0
        for since, running in self._unwatched:
            if now - since < UNWATCHED_FOR:
                break
            kept += 1
            self.life.end(running, Outcome.UNTOLD)
        del self._unwatched[:kept]

    def unwatch(self, running: Running) -> None:
        """Count a request for a while that goes on without its stream; nothing can take it back now."""
        self.life.out_of_reach(running)
        self._unwatched.append((self.clock.now(), running))

    def enter(self, headers: Headers) -> HandOff | None:
        """Check who sent this and whether anybody is let in. Raises `EntryRefusedError`."""
        token = _lookup(headers)(_HAND_OFF)
        now_ms = self.clock.wall_ms()
        hand_off = self.entry.authenticate(None if token is None else token.decode("latin-1"), now_ms)
        self.entry.admit(hand_off, now_ms)
        return hand_off

    def intake(self, ask: Ask, body: bytes) -> Intake:
        """Return what the life cycle takes in. Raises what `Reception.read` and `enter` raise."""
        hand_off = self.enter(ask.headers)
        among = None if ask.subset is None else self._among(ask.subset)
        return self.reception.read(hand_off, body, _lookup(ask.headers), among)

    def anywhere(self, ask: Ask) -> Decision:
        """Return endpoints for a request that names no model, in turn. Raises `EntryRefusedError`."""
        self.enter(ask.headers)
        among = None if ask.subset is None else self._among(ask.subset)
        scheduler = self.life.scheduler
        addresses = [
            pod.address
            for pool in scheduler.pools
            for pod in scheduler.table.serving(pool.name)[1]
            if among is None or pod.id in among
        ]
        if not addresses:
            raise _nobody()
        self._turn += 1
        first = self._turn % len(addresses)
        return Decision((*addresses[first:], *addresses[:first]))

    def _among(self, subset: Subset) -> frozenset[str]:
        found = frozenset(pod.id for pod in self.life.scheduler.table if subset.holds(pod.address))
        if not found:
            raise _nobody()
        return found


def _lookup(headers: Headers) -> Callable[[bytes], bytes | None]:
    """Return a look-up of lower-case names; repeated lines are joined (RFC 9110 5.3)."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        found[name] = found[name] + b", " + value if name in found else value
    return found.get


def _nobody() -> EntryRefusedError:
    return EntryRefusedError(DropReason.NO_ENDPOINTS, "No endpoint that this request may use can serve it.")


@dataclass(slots=True, eq=False)
class _Stream:
    """One stream: its machine, its pick, and the task that reads it."""

    service: ProcessorService
    context: Context
    session: Session
    running: Running | None = None
    _asked: bytes = b""
    _answer: Decision | Dropped | None = None
    _waiting: "asyncio.Future[None] | None" = None
    _task: "asyncio.Task[Any] | None" = None
    _interrupt: "Callable[[], Sequence[Effect]] | None" = None
    _reading: bool = False
    _held: int = 0

    async def run(self) -> None:
        """Read until either side ends the stream."""
        service, session = self.service, self.session
        self._task = asyncio.current_task()
        while True:
            data = None if self._interrupt is not None else await self._read()
            if data is grpc.aio.EOF:
                return
            interrupt, self._interrupt = self._interrupt, None
            if interrupt is not None and await self._perform(interrupt()):
                return
            if data is None:
                continue
            effects = session.receive(decode(data), service.clock.now())
            self._count_held()
            if service.held_bytes > HELD_BYTES_MAX:
                effects = self._refuse(
                    DropReason.SATURATED, "Too many request bodies wait here.", HELD_RETRY_AFTER
                )
            if effects and await self._perform(effects):
                return

    async def _read(self) -> Any:
        """Return the next message as bytes, `EOF`, or None when something interrupts the reading."""
        self._reading = True
        try:
            return await self.context.read()
        except asyncio.CancelledError:
            if self._interrupt is None or self._task is None or self._task.uncancel():
                raise
            return None
        finally:
            self._reading = False

    def expire(self, now: Instant) -> None:
        """Interrupt the reading when the machine has something to say about the time."""
        deadline = self.session.deadline
        if deadline is not None and deadline <= now:
            self._interrupt_with(lambda: self.session.expired(self.service.clock.now()))

    def _interrupt_with(self, effects: Callable[[], Sequence[Effect]]) -> None:
        """Have the task that reads perform something that no message asked for, at once or after what it does now."""
        if self._interrupt is None and self._task is not None:
            self._interrupt = effects
            if self._reading:
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
        answer = self._answer
        if isinstance(answer, Decision):
            return self.session.decided(answer)
        assert answer is not None  # noqa: S101 -- the future is resolved by an answer alone
        return self._refuse(answer.reason, answer.message, answer.retry_after)

    # Answer

    def picked(self, request: Running, pick: Pick, body: bytes) -> None:
        """The request has its pod."""
        self.running = request
        resolved = request.resolved
        changed = body is not self._asked
        self._answer = Decision(
            (pick.pod.address, *[pod.address for pod in pick.fallbacks]),
            body if changed else None,
            None if resolved is None or not changed else (resolved.target_model, resolved.client_model),
            () if resolved is None else model_headers(resolved),
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
            self._interrupt_with(lambda: self._refuse(dropped.reason, dropped.message, dropped.retry_after))

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
