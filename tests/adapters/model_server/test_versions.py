"""Versions: found in documents, ordered as Python packages are, and judged against a minimum."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.adapters.model_server.versions import judged, order_of, version_in
from services.core.pods.reading import EngineIdentity

ASCENDING = (
    "0.3.dev1",
    "0.3",
    "0.3.5.dev2",
    "0.3.5a1.dev3",
    "0.3.5a1",
    "0.3.5b2",
    "0.3.5rc1",
    "0.3.5rc1.post2",
    "0.3.5rc2",
    "0.3.5rc10",
    "0.3.5",
    "0.3.5.post1.dev4",
    "0.3.5.post1",
    "0.3.5.post2",
    "0.3.6",
    "0.10",
    "1!0.1",
)


def test_order_of_releases() -> None:
    orders = [order_of(version) for version in ASCENDING]
    for before, after in itertools.pairwise(orders):
        assert before is not None
        assert after is not None
        assert before < after


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("v0.9.2", "0.9.2"),
        ("0.9.2", "0.9.2.0"),
        ("0.9.2+cu128", "0.9.2+rocm.6"),
        ("0.9.2-rc.1", "0.9.2c1"),
        ("0.9.2-1", "0.9.2.post1"),
        ("0.9.2.rev3", "0.9.2-r3"),
        ("0.9.2.POST", "0.9.2post0"),
        (" 0.9.2.dev ", "0.9.2dev0"),
    ],
)
def test_spellings_of_one_release(one: str, other: str) -> None:
    assert order_of(one) is not None
    assert order_of(one) == order_of(other)


@pytest.mark.parametrize("text", ["", "dev", "unknown", "0.9.x", "\u0661.\u0662", "0..9", "0.9+", "9" * 40])
def test_what_is_no_version(text: str) -> None:
    assert order_of(text) is None


@pytest.mark.parametrize(
    ("version", "fault"),
    [
        ("0.3.5", "metric"),
        ("0.3.5rc9", "metric"),
        ("0.3.5.post1.dev1", "metric"),
        ("0.3.5.post1", ""),
        ("0.3.5.post2", ""),
        ("0.3.6rc1", ""),
        ("0.5.11", ""),
        ("main-abc", ""),
        ("", ""),
    ],
)
def test_below_the_minimum_is_a_fault_and_what_cannot_be_read_is_not(version: str, fault: str) -> None:
    assert judged("e", version, "0.3.5.post1", "metric") == EngineIdentity("e", version, fault)


@pytest.mark.parametrize(
    ("document", "version"),
    [
        (b'{"version": "0.11.0"}', "0.11.0"),
        (
            b'{"model_path": "m", "tp_size": 8, "internal_states": [{"version": "1"}], "version": "0.5.11"}',
            "0.5.11",
        ),
        (b'{"name": "triton", "version": "2.60.0", "extensions": ["statistics"]}', "2.60.0"),
        (b'{"version": 1}', ""),
        (b"[]", ""),
        (b"{", ""),
        (b"not found", ""),
        (b'{"version": "a\\nb"}', ""),
        (b'{"version": "' + b"9" * 99 + b'"}', "9" * 64),
    ],
)
def test_versions_in_documents(document: bytes, version: str) -> None:
    assert version_in(document) == version


@given(st.text(max_size=64))
def test_no_text_is_a_crash(text: str) -> None:
    """Invariant: any text has an order or has none."""
    order_of(text)
