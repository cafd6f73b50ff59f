"""A watched file: what counts as a change, and what keeps the set as it was."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.adapters.system.clock import SystemClock
from services.adapters.system.file_discovery import FileDiscovery
from services.core.pods.discovered import DiscoveredEndpoint
from services.core.units import ms
from tests.support.wait import eventually

Sets = list[tuple[DiscoveredEndpoint, ...]]


class Watched:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.source = FileDiscovery(file, SystemClock(), ms(5))
        self.sets: Sets = []

    def write(self, *names: str) -> None:
        entries = "".join(f"- {{name: {name}, address: 10.0.0.1, port: 1}}\n" for name in names)
        self.put(f"endpoints:\n{entries}" if names else "endpoints: []")

    def put(self, text: str) -> None:
        unfinished = self.file.with_suffix(".new")
        unfinished.write_text(text)
        unfinished.replace(self.file)

    @property
    def names(self) -> list[list[str]]:
        return [[endpoint.name for endpoint in each] for each in self.sets]


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    world = Watched(tmp_path / "endpoints.yaml")

    async def read() -> None:
        async for each in world.source.sets():
            world.sets.append(each)

    task = asyncio.get_running_loop().create_task(read())
    yield world
    task.cancel()
    outcome = (await asyncio.gather(task, return_exceptions=True))[0]
    assert isinstance(outcome, asyncio.CancelledError)


async def test_a_broken_file_keeps_the_set_and_says_where_it_is_broken(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.write("a")
    await eventually(lambda: watched.names == [["a"]])
    watched.put("endpoints: [{name: b, address: 10.0.0.1, port: 70000}]")
    await eventually(lambda: watched.source.trouble)
    assert watched.source.trouble == (
        f"{watched.file}: endpoints[0].port: 70000: endpoint-port: must lie in 1..65535"
    )
    watched.write("b")
    await eventually(lambda: watched.names == [["a"], ["b"]])
    assert watched.source.trouble == ""
    warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings[-1] == (
        f"endpoints stay as they were: {watched.file}: endpoints[0].port: 70000: endpoint-port: must lie in 1..65535"
    )


async def test_a_file_that_does_not_exist_yet_is_waited_for(watched: Watched) -> None:
    await eventually(lambda: "No such file" in watched.source.trouble)
    watched.write("a")
    await eventually(lambda: watched.names == [["a"]])


async def test_a_file_that_vanished_and_returned_unchanged_is_no_news(watched: Watched) -> None:
    watched.write("a")
    await eventually(lambda: watched.names == [["a"]])
    watched.file.unlink()
    await eventually(lambda: watched.source.trouble)
    watched.write("a")
    await eventually(lambda: watched.source.trouble == "")
    watched.write("b")
    await eventually(lambda: watched.names[-1] == ["b"])
    assert watched.names == [["a"], ["b"]]


async def test_a_touched_file_and_another_spelling_are_no_news(watched: Watched) -> None:
    watched.write("a")
    await eventually(lambda: watched.names == [["a"]])
    os.utime(watched.file, ns=(1, 1))
    watched.put('endpoints: [{name: "a", address: "10.0.0.1", port: "1"}]')
    watched.write("b")
    await eventually(lambda: watched.names[-1] == ["b"])
    assert watched.names == [["a"], ["b"]]


async def test_a_change_that_keeps_time_and_size_is_seen_by_the_moved_files_identity(
    watched: Watched,
) -> None:
    watched.write("a")
    await eventually(lambda: watched.names == [["a"]])
    times = watched.file.stat()
    other = watched.file.with_suffix(".other")
    other.write_text(watched.file.read_text().replace("name: a", "name: b"))
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(watched.file)
    await eventually(lambda: watched.names == [["a"], ["b"]])
