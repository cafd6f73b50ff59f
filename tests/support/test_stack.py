"""Skips, failures and counts of tests that want a real server, judged on small test runs of their own."""

import pytest

from tests.support.stack import required

CONFTEST = """
import pytest
from deploy.stack.errors import PartMissingError
from tests.support.stack import ServerTallies, made_or_skipped

def pytest_configure(config):
    config.pluginmanager.register(ServerTallies())
    config.addinivalue_line("markers", "server: needs a server")

@pytest.fixture
def redis_server():
    return made_or_skipped("redis", lambda: "redis")

@pytest.fixture
def kafka_server():
    def missing():
        raise PartMissingError("java is not on PATH")
    return made_or_skipped("kafka", missing)
"""
TESTS = """
import pytest

def test_named(redis_server): pass

@pytest.mark.parametrize("server", ["redis_server", "kafka_server"])
def test_asked_for(request, server): request.getfixturevalue(server)

def test_missing(kafka_server): pass

def test_without(): pass
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.delenv("GIR_REQUIRE", raising=False)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    return pytester


def test_the_summary_counts_what_ran_and_what_skipped_and_why(run: pytest.Pytester) -> None:
    outcome = run.runpytest()
    outcome.assert_outcomes(passed=3, skipped=2)
    outcome.stdout.fnmatch_lines(
        ["real kafka: 0 ran, 2 skipped (java is not on PATH)", "real redis: 2 ran, 0 skipped"]
    )


def test_a_required_server_that_is_missing_fails_the_test(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIR_REQUIRE", "kafka,redis")
    outcome = run.runpytest()
    outcome.assert_outcomes(passed=3, failed=1, errors=1)
    outcome.stdout.fnmatch_lines(["*GIR_REQUIRE asks for kafka: java is not on PATH*"])
    assert outcome.ret == pytest.ExitCode.TESTS_FAILED


def test_tests_that_name_a_server_are_left_out_by_the_server_mark(run: pytest.Pytester) -> None:
    run.runpytest("-m", "not server", "-k", "not asked_for").assert_outcomes(passed=1, deselected=4)


def test_a_server_nobody_knows_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match="memcached"):
        required({"GIR_REQUIRE": "kafka, memcached"})
    assert required({"GIR_REQUIRE": "kafka, redis"}) == {"kafka", "redis"}
    assert required({}) == frozenset()
