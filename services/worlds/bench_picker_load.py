"""Open-loop load: requests sent at their appointed times, whatever became of the ones before.

A closed loop slows down with what it measures and hides the queue; here latency counts from the appointed time, so
that a late generator shows as latency too, and how late it was is told beside. Connections are kept and reused;
a new one is opened when all are busy. Run as `python -m services.worlds.bench_picker_load …` it is a process of its
own, and imports little, so that its start costs little.
"""

import argparse
import asyncio
import json
import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import uvloop

from services.adapters.ports import Clock
from services.adapters.system.clock import SystemClock
from services.core.units import NS_PER_MS, NS_PER_S, Duration, Instant
from services.wire.http1.limits import ResponseLimits
from services.wire.http1.responses import ResponseError, ResponseParser
from services.worlds.bench_picker_figures import quantile

OPEN_AT_MOST = 2048
"""Connections at once. Beyond it requests fail, so that a subject at a standstill ends the run and not the host."""
DRAIN_S = 10.0
"""How long answers may still come after the last request went out; later ones count as failed."""
WARM_SHARE = 0.1
"""The first tenth of the requests opens connections and is not counted."""
CHARACTERS_PER_TOKEN = 4
_FAILURES_TOLD = 5


@dataclass(frozen=True, slots=True)
class Paces:
    """When requests are due: `count` of them, evenly, `rate` a second, from `start` on."""

    start: Instant
    rate: float
    count: int

    def __iter__(self) -> Iterator[Instant]:
        """Yield the due instants; each is computed from the start, so that rounding adds up to nothing."""
        for number in range(self.count):
            yield Instant(self.start + round(number * NS_PER_S / self.rate))


@dataclass(frozen=True, slots=True)
class RequestShape:
    """What is asked for. No two prompts begin alike."""

    model: str
    prompt_tokens: int = 200
    output_tokens: int = 100
    stream: bool = False

    def body(self, number: int) -> bytes:
        """Return the JSON body of request `number`."""
        text = f"{number:012d} " + "word" * self.prompt_tokens
        document: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": text[: self.prompt_tokens * CHARACTERS_PER_TOKEN]}],
            "max_tokens": self.output_tokens,
            "ignore_eos": True,
        }
        if self.stream:
            document["stream"] = True
        return json.dumps(document).encode()

    def request(self, number: int, port: int) -> bytes:
        """Return the whole request in HTTP/1.1."""
        body = self.body(number)
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class _Connection(asyncio.Protocol):
    """One connection: one request at a time."""

    def __init__(self, load: "OpenLoad") -> None:
        self._load = load
        self._parser = ResponseParser(ResponseLimits())
        self._transport: asyncio.Transport | None = None
        self._due: Instant | None = None
        self._first: Instant | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def send(self, request: bytes, due: Instant) -> None:
        assert self._transport is not None  # noqa: S101 -- a connection is handed out once it is made
        self._due, self._first = due, None
        self._parser.expect()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        if self._first is None:
            self._first = self._load.clock.now()
        try:
            parser.feed(data)
        except ResponseError as error:
            self._end(f"malformed: {error}")
            return
        parser.take_body()
        if not parser.complete:
            return
        status = 0 if parser.head is None else parser.head.status
        self._end("" if status == 200 else f"answered {status}")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- the protocol's shape
        self._transport = None
        if self._due is not None:
            self._end("connection lost")

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _end(self, fault: str) -> None:
        due, first, self._due = self._due, self._first, None
        if due is not None:
            self._load.ended(due, first, fault)
        if fault or self._transport is None or (self._parser.head and not self._parser.head.keep_alive):
            self.abort()
        else:
            self._load.idle.append(self)

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()


class OpenLoad:
    """Sends `count` requests at `rate` to `port`, and notes how each went."""

    def __init__(self, port: int, shape: RequestShape, rate: float, count: int, clock: Clock) -> None:
        self.clock = clock
        self.idle: list[_Connection] = []
        self._port = port
        self._shape = shape
        self._rate = rate
        self._count = count
        self._latencies: list[Duration] = []
        self._first_bytes: list[Duration] = []
        self._faults: list[str] = []
        self._late: list[Duration] = []
        self._busy = 0
        self._counted_from = Instant(0)
        self._over = asyncio.Event()

    async def run(self, first_number: int = 0) -> dict[str, Any]:
        """Send all and return the figures: quantiles in ms of latency, first byte and lateness, faults, own CPU."""
        before = _cpu_s()
        paces = Paces(Instant(self.clock.now() + NS_PER_MS), self._rate, self._count)
        self._counted_from = Instant(paces.start + round(self._count * WARM_SHARE * NS_PER_S / self._rate))
        for number, due in enumerate(paces):
            wait = due - self.clock.now()
            # A timer is a millisecond wide; what is due sooner goes out now rather than late.
            if wait > NS_PER_MS // 2:
                await asyncio.sleep(wait / NS_PER_S)
            self._late.append(Duration(max(0, self.clock.now() - due)))
            await self._send(self._shape.request(first_number + number, self._port), due)
        deadline = self.clock.now() + round(DRAIN_S * NS_PER_S)
        while self._busy and self.clock.now() < deadline:
            self._over.clear()
            try:
                async with asyncio.timeout(DRAIN_S):
                    await self._over.wait()
            except TimeoutError:
                break
        self._faults += ["no answer"] * self._busy
        took = (self.clock.now() - paces.start) / NS_PER_S
        for connection in self.idle:
            connection.abort()
        return self._figures(took) | {"cpu_s": _cpu_s() - before}

    def ended(self, due: Instant, first: Instant | None, fault: str) -> None:
        """A request is over."""
        self._busy -= 1
        if not self._busy:
            self._over.set()
        if fault:
            self._faults.append(fault)
        elif due >= self._counted_from and first is not None:
            self._latencies.append(Duration(self.clock.now() - due))
            self._first_bytes.append(Duration(first - due))

    async def _send(self, request: bytes, due: Instant) -> None:
        self._busy += 1
        while self.idle:
            connection = self.idle.pop()
            if connection.open:
                connection.send(request, due)
                return
        if self._busy > OPEN_AT_MOST:
            self.ended(due, None, "too many connections")
            return
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: _Connection(self), "127.0.0.1", self._port
            )
        except OSError as error:
            self.ended(due, None, f"connect: {error.strerror}")
            return
        connection.send(request, due)

    def _figures(self, took_s: float) -> dict[str, Any]:
        def of(values: list[Duration], share: float) -> float | None:
            return quantile(values, share) / NS_PER_MS if values else None

        return {
            "sent": self._count,
            "answered": len(self._latencies),
            "faults": len(self._faults),
            "first_faults": self._faults[:_FAILURES_TOLD],
            "requests_per_s": self._count / took_s,
            "p50_ms": of(self._latencies, 0.5),
            "p95_ms": of(self._latencies, 0.95),
            "p99_ms": of(self._latencies, 0.99),
            "first_byte_p50_ms": of(self._first_bytes, 0.5),
            "first_byte_p95_ms": of(self._first_bytes, 0.95),
            "late_p99_ms": of(self._late, 0.99),
        }


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(arguments: list[str]) -> None:
    """Send what is asked for and print the figures as one line of JSON."""
    parser = argparse.ArgumentParser(prog="bench_picker_load")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt-tokens", type=int, default=200)
    parser.add_argument("--output-tokens", type=int, default=100)
    parser.add_argument("--stream", action="store_true")
    options = parser.parse_args(arguments)
    shape = RequestShape(options.model, options.prompt_tokens, options.output_tokens, options.stream)
    load = OpenLoad(options.port, shape, options.rate, options.requests, SystemClock())
    sys.stdout.write(json.dumps(uvloop.run(load.run(options.first))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
