"""Whether a test may skip for want of a real server, and the count of tests that met one.

`deploy/stack` starts the servers; here is only pytest's side of it. `GIR_REQUIRE=kafka,redis` turns a missing
server from a skip into a failure, and the closing summary says how many tests ran against real ones.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

import pytest

from deploy.stack.errors import PartMissingError

Started = TypeVar("Started")

# Which fixtures stand for which real server; a test that reaches one of them counts as run against it.
FIXTURES_OF: Mapping[str, frozenset[str]] = {
    "kafka": frozenset({"kafka_server", "own_kafka", "fleet_kafka"}),
    "redis": frozenset({"redis_server", "own_redis", "fleet_redis"}),
    "envoy": frozenset({"envoy_places"}),
    "kubernetes": frozenset({"kubernetes_server", "own_kubernetes"}),
}
_SKIP_PREFIX = "no real "


def required(environment: Mapping[str, str]) -> frozenset[str]:
    """The servers that must be there, from `GIR_REQUIRE`; an unknown name is a usage error, not ignored."""
    names = frozenset(name.strip() for name in environment.get("GIR_REQUIRE", "").split(",") if name.strip())
    unknown = names - FIXTURES_OF.keys()
    if unknown:
        raise pytest.UsageError(f"GIR_REQUIRE names {sorted(unknown)}; known are {sorted(FIXTURES_OF)}")
    return names


def made_or_skipped(server: str, make: Callable[[], Started]) -> Started:
    """What `make` returns; where the machine lacks the server the test skips, or fails if it is required."""
    try:
        return make()
    except PartMissingError as reason:
        _unavailable(server, str(reason))


def _unavailable(server: str, reason: str) -> NoReturn:
    if server in required(os.environ):
        pytest.fail(f"GIR_REQUIRE asks for {server}: {reason}", pytrace=False)
    pytest.skip(f"{_SKIP_PREFIX}{server}: {reason}")


@dataclass(slots=True)
class Tally:
    """What became of the tests that want one real server."""

    ran: set[str] = field(default_factory=set)
    skipped: dict[str, str] = field(default_factory=dict)
    """Test id -> reason."""

    def line(self, server: str) -> str:
        """One line for the closing summary."""
        reasons = "; ".join(sorted(set(self.skipped.values())))
        return f"real {server}: {len(self.ran)} ran, {len(self.skipped)} skipped" + (
            f" ({reasons})" if reasons else ""
        )


class ServerTallies:
    """A pytest plugin: marks the tests that need a server, counts them and reports at the end."""

    def __init__(self) -> None:
        self.tallies = {server: Tally() for server in FIXTURES_OF}
        self._called: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Marks `server` on every test that names a server fixture, before `-m` looks at the marks."""
        for item in items:
            if servers_among(getattr(item, "fixturenames", ())):
                item.add_marker(pytest.mark.server)

    @pytest.fixture(autouse=True)
    def _met_servers(self, request: pytest.FixtureRequest) -> Iterator[None]:
        """Runs around every test: `fixturenames` also holds what a suite asked for by `getfixturevalue`."""
        yield
        for server in servers_among(request.fixturenames):
            if request.node.nodeid in self._called:
                self.tallies[server].ran.add(request.node.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes the tests whose body ran, and those that skipped for want of a server."""
        if report.when == "call" and not report.skipped:
            self._called.add(report.nodeid)
        if not (report.skipped and isinstance(report.longrepr, tuple)):
            return
        reason = report.longrepr[2].removeprefix("Skipped: ")
        for server, tally in self.tallies.items():
            prefix = f"{_SKIP_PREFIX}{server}: "
            if reason.startswith(prefix):
                tally.skipped[report.nodeid] = reason.removeprefix(prefix)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Says plainly what ran against the real thing and what did not."""
        terminalreporter.section("real servers")
        for server, tally in self.tallies.items():
            terminalreporter.write_line(tally.line(server))


def servers_among(fixture_names: Collection[str]) -> list[str]:
    """The real servers that these fixtures stand for."""
    return [server for server, fixtures in FIXTURES_OF.items() if not fixtures.isdisjoint(fixture_names)]
