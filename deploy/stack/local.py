"""The local stack behind `make stack-up` and `make stack-down`: Kafka, Redis and its Sentinel, in the background.

What was started is written down under `.cache/stack`, one record per process, with the process's start time, so
that taking the stack down ends those processes and never a stranger that got the same process id.
"""

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from deploy.stack.errors import PartFailedError, PartMissingError
from deploy.stack.kafka import KafkaServer, fetch_jars
from deploy.stack.ports import free_port, is_free
from deploy.stack.process import STOP_TIMEOUT_S, Process, wait_until
from deploy.stack.redis import RedisSentinel, RedisServer

DIRECTORY = Path(__file__).resolve().parents[2] / ".cache" / "stack"
KAFKA_PORT = 9092
REDIS_PORT = 6379
SENTINEL_PORT = 26379


@dataclass(frozen=True, slots=True)
class Record:
    """One background process, as remembered between `up` and `down`."""

    name: str
    pid: int
    started_ticks: int
    """Clock ticks from the machine's boot to the process's start: with the pid, one process and no other."""
    port: int

    @property
    def alive(self) -> bool:
        """True while this very process runs."""
        return started_ticks(self.pid) == self.started_ticks


def started_ticks(pid: int) -> int | None:
    """Field 22 of proc(5)'s `stat`: when the process started; None when it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else int(fields[19])


def records(directory: Path) -> list[Record]:
    """The processes written down in `directory`, alive or not, in the order of their names."""
    return [Record(**json.loads(path.read_text())) for path in sorted(directory.glob("*.json"))]


def up(directory: Path, say: Callable[[str], None]) -> int:
    """Starts what does not run yet and says the addresses; 0, or 3 when the machine lacks a part, or 1 on failure."""
    running = [record for record in records(directory) if record.alive]
    if running:
        say("The stack already runs; `make stack-down` ends it.")
        _say_addresses({record.name: record.port for record in running}, say)
        return 0
    shutil.rmtree(directory, ignore_errors=True)
    ports: dict[str, int] = {}
    missing = False
    try:
        for name, start in (("redis", _start_redis), ("kafka", _start_kafka)):
            try:
                ports |= start(directory)
            except PartMissingError as reason:
                say(f"No {name}: {reason}.")
                missing = True
    except PartFailedError as failure:
        down(directory, say)
        say(str(failure))
        return 1
    _say_addresses(ports, say)
    return 3 if missing else 0


def down(directory: Path, say: Callable[[str], None]) -> int:
    """Ends the processes written down, and only those, and deletes their data; always 0."""
    for record in records(directory):
        if record.alive:
            os.kill(record.pid, signal.SIGTERM)
            if not wait_until(lambda record=record: not record.alive, STOP_TIMEOUT_S):  # type: ignore[misc]  # bound now
                os.kill(record.pid, signal.SIGKILL)
            say(f"Ended {record.name} (process {record.pid}).")
    shutil.rmtree(directory, ignore_errors=True)
    return 0


def _start_redis(directory: Path) -> dict[str, int]:
    server = RedisServer(directory / "redis", port=_port(REDIS_PORT), outlives_parent=True)
    sentinel = RedisSentinel(
        directory / "sentinel", server.port, port=_port(SENTINEL_PORT), outlives_parent=True
    )
    server.start()
    _write_down(directory, server.process, server.port)
    sentinel.start()
    _write_down(directory, sentinel.process, sentinel.port)
    return {"redis": server.port, "sentinel": sentinel.port}


def _start_kafka(directory: Path) -> dict[str, int]:
    fetch_jars()
    server = KafkaServer(directory / "kafka", port=_port(KAFKA_PORT), outlives_parent=True)
    server.start()
    _write_down(directory, server.process, server.port)
    return {"kafka": server.port}


def _port(usual: int) -> int:
    return usual if is_free(usual) else free_port()


def _write_down(directory: Path, process: Process, port: int) -> None:
    ticks = started_ticks(process.pid)
    if ticks is None:
        raise PartFailedError(f"{process.name} ended right after its start:\n{process.tail()}")
    record = Record(process.name, process.pid, ticks, port)
    (directory / f"{process.name}.json").write_text(json.dumps(asdict(record)))


def _say_addresses(ports: dict[str, int], say: Callable[[str], None]) -> None:
    options = []
    if "kafka" in ports:
        options.append(f"--kafka 127.0.0.1:{ports['kafka']}")
    if "redis" in ports:
        options.append(f"--redis redis://127.0.0.1:{ports['redis']}/0")
    if options:
        say(" ".join(options))
    if "sentinel" in ports:
        say(f"Redis Sentinel: 127.0.0.1:{ports['sentinel']}, master name `gir`")
