"""The local stack: it comes up with addresses, is not started twice, and goes down without harming strangers."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
import redis

from deploy.stack.kafka import KafkaServer
from deploy.stack.local import Record, down, records, started_ticks, up
from deploy.stack.redis import RedisServer, answers_ping
from tests.support.stack import made_or_skipped

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    stack = tmp_path / "stack"
    yield stack
    down(stack, lambda _: None)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as process:
        yield process
        process.kill()


@pytest.mark.server
def test_the_stack_comes_up_once_and_goes_down_whole(directory: Path, tmp_path: Path) -> None:
    made_or_skipped("redis", lambda: RedisServer(tmp_path))
    made_or_skipped("kafka", lambda: KafkaServer(tmp_path))
    addresses = _run("up", directory)
    started = records(directory)
    ports = {record.name: record.port for record in started}
    assert f"--kafka 127.0.0.1:{ports['kafka']} --redis redis://127.0.0.1:{ports['redis']}/0" in addresses
    with redis.Redis(port=ports["sentinel"], decode_responses=True) as sentinel:
        watched = sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "gir")
    assert watched == ["127.0.0.1", str(ports["redis"])]
    assert _run("up", directory)[1:] == addresses
    assert records(directory) == started
    _run("down", directory)
    assert [record for record in started if record.alive] == []
    assert not answers_ping(ports["redis"])
    assert not directory.exists()


def _run(verb: str, directory: Path) -> list[str]:
    """What the program prints; it has ended by then, and what it started must outlive it."""
    command = [sys.executable, "-m", "deploy.stack", "--directory", str(directory), verb]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=90, check=True)
    return done.stdout.splitlines()


def test_a_machine_that_lacks_the_parts_is_told_which(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    said: list[str] = []
    assert up(directory, said.append) == 3
    assert said[0] == "No redis: redis-server is not on PATH."
    assert said[1].startswith("No kafka: java is not on PATH")


def test_down_spares_a_stranger_with_a_remembered_pid(
    directory: Path, stranger: subprocess.Popen[bytes]
) -> None:
    """Claim: a process id that the system gave to another process since is not ended."""
    ticks = started_ticks(stranger.pid)
    assert ticks is not None
    directory.mkdir()
    (directory / "redis.json").write_text(json.dumps(asdict(Record("redis", stranger.pid, ticks - 1, 1))))
    down(directory, lambda _: None)
    assert stranger.poll() is None


def test_down_ends_what_was_written_down(directory: Path, stranger: subprocess.Popen[bytes]) -> None:
    ticks = started_ticks(stranger.pid)
    assert ticks is not None
    directory.mkdir()
    (directory / "redis.json").write_text(json.dumps(asdict(Record("redis", stranger.pid, ticks, 1))))
    down(directory, lambda _: None)
    assert stranger.wait() == -signal.SIGTERM


def test_a_process_that_ended_has_no_start_time(stranger: subprocess.Popen[bytes]) -> None:
    assert started_ticks(os.getpid()) is not None
    stranger.kill()
    stranger.wait()
    assert started_ticks(stranger.pid) is None
