"""Sessions: bound to their last pod, for a while, and never without bound."""

import pytest

from services.core.units import Instant, seconds
from services.endpoint_picker.sessions import SessionTable, pod_of_token, session_token


def at(second: float) -> Instant:
    return Instant(seconds(second))


def test_a_session_stays_with_its_last_pod_until_it_falls_silent() -> None:
    table = SessionTable(ttl=seconds(10))
    assert table.pod("chat", at(0)) is None
    table.bind("chat", "a", at(0))
    assert table.pod("chat", at(9)) == "a"
    table.bind("chat", "b", at(9))
    assert table.pod("chat", at(18)) == "b"
    assert table.pod("chat", at(19)) is None
    assert len(table) == 0


def test_the_least_recently_used_goes_first() -> None:
    table = SessionTable(most=2)
    table.bind("one", "a", at(0))
    table.bind("two", "a", at(1))
    table.bind("one", "a", at(2))
    table.bind("three", "a", at(3))
    assert [table.pod(name, at(3)) for name in ("one", "two", "three")] == ["a", None, "a"]


def test_a_sweep_forgets_the_silent_ones_alone() -> None:
    table = SessionTable(ttl=seconds(10))
    for number in range(5):
        table.bind(f"s{number}", "a", at(number))
    table.sweep(at(12.5))
    assert len(table) == 2
    table.sweep(at(100))
    assert len(table) == 0


def test_tokens_name_pods() -> None:
    assert session_token("ns/name") == "bnMvbmFtZQ=="
    assert pod_of_token(session_token("pod-ü")) == "pod-ü"


@pytest.mark.parametrize("token", ["", "%", "bnMvbmFtZQ", "/w=="])
def test_rubbish_names_nobody_that_is_there(token: str) -> None:
    assert not pod_of_token(token)
