"""Clients of the doors: raw HTTP/1.1 over real sockets, no retry of any kind, everything noted.

A worker sends one request after another in one shape over one connection; what happened to each is
a `Sample`. Instants are the world's monotonic clock, so that they compare with the services' own
records. Judging is `claims`'.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from services.adapters.ports import Clock
from services.adapters.system.tasks import TaskScope
from services.core.units import Duration, Instant, ms
from services.wire.http1.limits import ResponseLimits
from services.wire.http1.responses import ResponseError, ResponseHead, ResponseParser
from services.worlds.topology_ports import LOOPBACK

READ_BYTES: Final = 65_536
REQUEST_TIMEOUT_S: Final = 60.0
"""Twice the router's own first-byte limit: a client that gives up first would hide whose fault it was."""
PAUSE_AFTER_FAILURE: Final = ms(100)
"""A client of a door that is gone must not spin."""
_DONE: Final = b"data: [DONE]"
_ERROR_EVENT: Final = b'data: {"error"'


@dataclass(frozen=True, slots=True)
class Shape:
    """What a worker asks for. `think` is its pause between two requests; A long prompt delays the first byte;
    `padding_bytes` swell the body without a prompt to read."""

    name: str
    model: str
    stream: bool
    max_tokens: int
    think: Duration
    prompt_tokens: int = 8
    padding_bytes: int = 0

    def body(self, number: int) -> bytes:
        """Return the body of a worker's request; no two prompts begin alike, and each answer has its exact length."""
        prompt = f"{number} {self.name} " + "word" * self.prompt_tokens
        document: dict[str, object] = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": self.max_tokens,
            "ignore_eos": True,
            "stream": self.stream,
        }
        if self.padding_bytes:
            document["metadata"] = {"padding": "x" * self.padding_bytes}
        return orjson.dumps(document)


@dataclass(slots=True)
class Sample:
    """One request as its client saw it. `fault` is empty for a complete answer, else a short word."""

    door: str
    shape: Shape
    body_bytes: int
    sent_at: Instant
    first_byte_at: Instant | None = None
    ended_at: Instant | None = None
    status: int = 0
    cluster: str = ""
    request_id: str = ""
    fault: str = ""

    @property
    def failed(self) -> bool:
        """Whether the client did not get a whole answer."""
        return bool(self.fault)

    @property
    def broken_after_first_byte(self) -> bool:
        """Whether a stream had begun when it failed: the one failure a router cannot hide."""
        return self.failed and self.shape.stream and self.status == 200


class DoorClient:
    """One connection to one door; used by one worker at a time."""

    def __init__(self, door: str, port: int, token: str, clock: Clock) -> None:
        self._door = door
        self._port = port
        self._clock = clock
        self._head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {LOOPBACK}:{port}\r\n"
            f"authorization: Bearer {token}\r\ncontent-type: application/json\r\n"
        ).encode("ascii")
        self._parser = ResponseParser(ResponseLimits())
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, shape: Shape, body: bytes) -> Sample:
        """Send one request and return what became of it; never raises but when cancelled."""
        sample = Sample(self._door, shape, len(body), self._clock.now())
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await self._exchange(sample, body)
        except TimeoutError:
            sample.fault = "timeout"
        except ConnectionRefusedError:
            sample.fault = "refused"
        except OSError:
            sample.fault = "reset"
        except ResponseError:
            sample.fault = "malformed"
        except asyncio.CancelledError:
            self.close()
            raise
        sample.ended_at = self._clock.now()
        if sample.fault:
            self.close()
        return sample

    def close(self) -> None:
        """Drop the connection."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None
            self._parser.close()
            self._parser = ResponseParser(ResponseLimits())

    async def _exchange(self, sample: Sample, body: bytes) -> None:
        if self._streams is None:
            self._streams = await asyncio.open_connection(LOOPBACK, self._port)
        reader, writer = self._streams
        parser = self._parser
        parser.expect()
        writer.write(b"%bcontent-length: %d\r\n\r\n%b" % (self._head, len(body), body))
        await writer.drain()
        received = bytearray()
        while not parser.complete:
            data = await reader.read(READ_BYTES)
            if not data:
                sample.fault = "" if parser.end() else "truncated"
                break
            if sample.first_byte_at is None:
                sample.first_byte_at = self._clock.now()
            parser.feed(data)
            if parser.head is not None and not sample.status:
                _note_head(sample, parser.head)
            received += parser.take_body()
        if parser.head is not None and not parser.head.keep_alive:
            self.close()
        sample.fault = sample.fault or fault_in(sample.status, bytes(received), stream=sample.shape.stream)


def _note_head(sample: Sample, head: ResponseHead) -> None:
    sample.status = head.status
    sample.cluster = (head.header(b"x-gir-cluster") or b"").decode("latin-1")
    sample.request_id = (head.header(b"x-gir-request-id") or b"").decode("latin-1")


def fault_in(status: int, body: bytes, *, stream: bool) -> str:
    """Return what is wrong with a complete response, or an empty string."""
    if status != 200:
        return f"status_{status}"
    if stream:
        if body.startswith(_ERROR_EVENT) or b"\n" + _ERROR_EVENT in body:
            return "in_band_error"
        return "" if _DONE in body else "unfinished_stream"
    return "" if b'"choices"' in body else "no_choices"


@dataclass(frozen=True, slots=True)
class Crowd:
    """`workers` clients of one door that ask in one shape."""

    door: str
    shape: Shape
    workers: int


class Load:
    """Crowds at the doors. Samples gather in `samples`, each when its request has ended."""

    def __init__(self, token: str, clock: Clock, scope: TaskScope) -> None:
        self.samples: list[Sample] = []
        self._asked = 0
        self._token = token
        self._clock = clock
        self._scope = scope
        self._leaving: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}

    def start(self, crowds: Sequence[Crowd], ports: dict[str, int]) -> None:
        """Send the crowds to their doors; `ports` maps a door's region to its port."""
        for crowd in crowds:
            leaving = self._leaving.setdefault(crowd.door, asyncio.Event())
            tasks = self._tasks.setdefault(crowd.door, [])
            for number in range(crowd.workers):
                client = DoorClient(crowd.door, ports[crowd.door], self._token, self._clock)
                work = self._work(client, crowd.shape, leaving)
                tasks.append(self._scope.spawn(work, f"{crowd.door} {crowd.shape.name} {number}"))

    async def finish(self, door: str) -> None:
        """Let the clients of a door end what they are at, then leave."""
        self._leaving.pop(door).set()
        await asyncio.gather(*self._tasks.pop(door))

    async def drop(self, door: str) -> None:
        """Cut the clients of a door off; what they were at is not noted."""
        self._leaving.pop(door).set()
        tasks = self._tasks.pop(door)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, client: DoorClient, shape: Shape, leaving: asyncio.Event) -> None:
        try:
            while not leaving.is_set():
                self._asked += 1
                sample = await client.ask(shape, shape.body(self._asked))
                self.samples.append(sample)
                await self._clock.sleep(shape.think if not sample.failed else PAUSE_AFTER_FAILURE)
        finally:
            client.close()
