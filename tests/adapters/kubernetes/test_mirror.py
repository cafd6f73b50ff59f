"""The copy of a collection under lists and events, in shapes as an API server sends them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.adapters.kubernetes.mirror import BrokenWatchError, Mirror, TooOldError


def thing(name: str, version: int, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, **fields}


def names(mirror: Mirror) -> list[str]:
    return [each["metadata"]["name"] for each in mirror.objects]


def test_a_list_replaces_everything_and_the_first_is_news_even_when_empty() -> None:
    mirror = Mirror()
    assert mirror.listed([], "1")
    assert not mirror.listed([], "2")
    assert mirror.listed([thing("b", 3), thing("a", 2)], "3")
    assert names(mirror) == ["a", "b"]
    assert mirror.listed([thing("a", 2)], "9")
    assert (names(mirror), mirror.version) == (["a"], "9")


def test_events_apply_in_order_and_move_the_resume_point() -> None:
    mirror = Mirror()
    mirror.listed([], "1")
    assert mirror.heard({"type": "ADDED", "object": thing("a", 2)})
    assert not mirror.heard({"type": "ADDED", "object": thing("a", 2)})
    assert mirror.heard({"type": "MODIFIED", "object": thing("a", 3, spec={})})
    assert not mirror.heard({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}})
    assert mirror.version == "7"
    assert mirror.heard({"type": "DELETED", "object": thing("a", 8)})
    assert not mirror.heard({"type": "DELETED", "object": thing("a", 8)})
    assert (names(mirror), mirror.version) == ([], "8")


def test_a_forgotten_resume_point_is_told_apart_from_other_errors() -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (5)"}
    with pytest.raises(TooOldError, match="too old resource version"):
        Mirror().heard({"type": "ERROR", "object": gone})
    with pytest.raises(BrokenWatchError, match="etcd is down"):
        Mirror().heard({"type": "ERROR", "object": {"code": 500, "message": "etcd is down"}})


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"type": "ADDED", "object": []},
        {"type": "ADDED", "object": {"metadata": {"name": "a"}}},
        {"type": "RENAMED", "object": thing("a", 2)},
    ],
)
def test_what_cannot_be_applied_breaks_the_watch_and_changes_nothing(event: dict[str, Any]) -> None:
    mirror = Mirror()
    mirror.listed([], "1")
    with pytest.raises(BrokenWatchError):
        mirror.heard(event)
    assert (mirror.objects, mirror.version) == ((), "1")


@given(
    st.lists(
        st.tuples(st.sampled_from(["ADDED", "MODIFIED", "DELETED"]), st.sampled_from("abc")), max_size=30
    )
)
def test_events_and_a_list_at_their_end_agree(events: list[tuple[str, str]]) -> None:
    """Invariant: after any events the copy is what a list at the same version would bring, so that list is no news."""
    mirror = Mirror()
    mirror.listed([], "1")
    truth: dict[str, dict[str, Any]] = {}
    for version, (kind, name) in enumerate(events, start=2):
        changed = mirror.heard({"type": kind, "object": thing(name, version)})
        before = dict(truth)
        truth.pop(name, None)
        if kind != "DELETED":
            truth[name] = thing(name, version)
        assert changed == (truth != before)
    assert not mirror.listed(truth.values(), "99")
