"""ext_proc over gRPC: where Envoy and the gateways built on it ask for an endpoint, one stream per request.

What is said when is `wire/ext_proc`'s, which endpoint is the life cycle's. Here the two meet: streams are read,
effects performed, and every stream's pick ends with it. The raw bytes of messages pass through, so that gRPC
parses nothing on its own.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import grpc

from services.adapters.grpc.failures import Context, guard_unary
from services.adapters.grpc.reading import Handler
from services.adapters.grpc.server import Door
from services.adapters.ports import Clock
from services.adapters.system.tasks import TaskScope
from services.adapters.telemetry.histogram import LATENCY_SECONDS, Histogram
from services.core.outcomes import DropReason
from services.core.units import NS_PER_S, Instant, seconds
from services.endpoint_picker.doors.ext_proc_stream import Stream
from services.endpoint_picker.entry import Entry, EntryRefusedError
from services.endpoint_picker.intake import Intake, Reception
from services.endpoint_picker.lifecycle import Lifecycle, Running
from services.endpoint_picker.outcomes import Outcome
from services.wire.ext_proc.events import (
    Ask,
    Decision,
    Headers,
    StreamRules,
)
from services.wire.ext_proc.messages import SERVICE
from services.wire.ext_proc.metadata import lookup
from services.wire.ext_proc.session import Session
from services.wire.ext_proc.subset import Subset
from services.wire.hand_off import HEADER, HandOff

UNWATCHED_FOR = seconds(1)
"""How long a request counts as in flight whose end the data plane will not tell: by then, with the default of
five scrapes a second, its pod's own numbers show it."""

HEALTH_NAMES = (SERVICE.full_name, "inference-extension")
"""Names that gateways and the conformance suite's manifests probe."""
ENVELOPE_BYTES = 1 << 20
"""What a message holds beside a buffered body: headers and metadata."""

_LOG = logging.getLogger(__name__)
_HAND_OFF = HEADER.encode()


@dataclass(slots=True, eq=False)
class ProcessorService:
    """The servicer. `expire` is called from time to time; `light` is cleared to hold every stream (a black hole)."""

    entry: Entry
    reception: Reception
    life: Lifecycle
    clock: Clock
    rules: StreamRules = field(default_factory=StreamRules)
    light: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: TaskScope = field(init=False)
    held_bytes: int = 0
    streams_ended: Counter[str] = field(default_factory=Counter)
    stream_seconds: Histogram = field(default_factory=lambda: Histogram(LATENCY_SECONDS))
    _streams: set[Stream] = field(default_factory=set)
    _unwatched: list[tuple[Instant, Running]] = field(default_factory=list)
    _turn: int = 0
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Begin in the light, with nothing running."""
        self.light.set()
        self._idle.set()
        self.tasks = TaskScope(self._failed)

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
        stream = Stream(self, context, Session(self.rules))
        begun, code = self.clock.now(), "Internal"
        self._streams.add(stream)
        self._idle.clear()
        try:
            await stream.run()
            code = "OK"
        except asyncio.CancelledError:
            code = "Canceled"
            raise
        finally:
            self.streams_ended[code] += 1
            self.stream_seconds.observe((self.clock.now() - begun) / NS_PER_S)
            self._streams.discard(stream)
            stream.close()
            if not self._streams:
                self._idle.set()

    async def finished(self) -> None:
        """Wait until no stream is left; a stopped gRPC server may still run the last steps of some."""
        await self._idle.wait()
        await self.tasks.close()

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
        token = lookup(headers)(_HAND_OFF)
        now_ms = self.clock.wall_ms()
        hand_off = self.entry.authenticate(None if token is None else token.decode("latin-1"), now_ms)
        self.entry.admit(hand_off, now_ms)
        return hand_off

    def intake(self, ask: Ask, body: bytes) -> Intake:
        """Return what the life cycle takes in. Raises what `Reception.read` and `enter` raise."""
        hand_off = self.enter(ask.headers)
        among = None if ask.subset is None else self._among(ask.subset)
        intake = self.reception.read(hand_off, body, lookup(ask.headers), among)
        return replace(intake, explain=True) if self.rules.scores else intake

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
            raise self._nobody()
        self._turn += 1
        first = self._turn % len(addresses)
        return Decision((*addresses[first:], *addresses[:first]))

    @staticmethod
    def _failed(name: str, failure: BaseException) -> None:
        _LOG.error("%s: a stream could not be told of its end", name, exc_info=failure)

    def _among(self, subset: Subset) -> frozenset[str]:
        found = frozenset(pod.id for pod in self.life.scheduler.table if subset.holds(pod.address))
        if not found:
            raise self._nobody()
        return found

    def _nobody(self) -> EntryRefusedError:
        self.entry.counters.rejections[DropReason.NO_ENDPOINTS.value] += 1
        return EntryRefusedError(
            DropReason.NO_ENDPOINTS, "No endpoint that this request may use can serve it."
        )
