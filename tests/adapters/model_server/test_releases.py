"""The compatibility tables: made by reading pages of releases, and shown in docs/engines.md as they are."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.fleet import PodState
from tests.adapters.model_server.releases import (
    FIXTURES,
    READERS,
    RELEASES,
    Release,
    compatibility_table,
    scorer_table,
)

DOCUMENT = Path(__file__).parents[3] / "docs" / "engines.md"


@pytest.mark.parametrize("table", [compatibility_table, scorer_table])
def test_the_document_shows_what_the_readers_read(table: Callable[[], str]) -> None:
    assert f"\n\n{table()}\n\n" in DOCUMENT.read_text(encoding="utf-8")


def test_every_page_is_a_release_of_the_tables() -> None:
    assert {path.name for path in FIXTURES.iterdir()} == {
        f"{release.engine}-{release.version}.txt" for release in RELEASES
    }


@pytest.mark.parametrize(
    ("release", "state", "named"),
    [
        (Release("vllm", "0.9.1"), PodState.DEGRADED, "vllm:kv_cache_usage_perc"),
        (Release("vllm", "0.9.2"), PodState.READY, ""),
        (Release("sglang", "0.3.5"), PodState.DEGRADED, "sglang:num_queue_reqs"),
        (Release("sglang", "0.3.5.post1"), PodState.READY, ""),
        (Release("tgi", "3.3.4"), PodState.READY, ""),
        (Release("triton", "2.60.0"), PodState.READY, ""),
    ],
    ids=str,
)
def test_just_under_the_minimum_is_degraded_by_the_metrics_name(
    release: Release, state: PodState, named: str
) -> None:
    found, reason = release.verdict
    assert found is state
    assert named in reason


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_what_a_release_lacks_is_unknown_and_never_zero(release: Release) -> None:
    reading = release.reading
    assert 0 not in (reading.waiting, reading.running, reading.kv_use)
    empty = READERS.reader(release.engine)(b"", with_ttft=True)
    assert (empty.waiting, empty.running, empty.kv_use, empty.ttft, empty.max_adapters) == (None,) * 5
    assert empty.missing


@given(st.sampled_from(RELEASES), st.randoms())
def test_the_order_of_a_pages_lines_means_nothing(release: Release, random: Random) -> None:
    """Invariant: a page read in any order of its lines gives the same reading."""
    lines = release.page.splitlines(keepends=True)
    random.shuffle(lines)
    assert READERS.reader(release.engine)(b"".join(lines), with_ttft=True) == release.reading


@given(st.sampled_from(RELEASES), st.data())
def test_a_page_cut_anywhere_is_read_without_an_exception(release: Release, data: st.DataObject) -> None:
    """Invariant: of a torn page each signal is at most what the whole page says, or unknown."""
    page = release.page
    cut = page[: data.draw(st.integers(0, len(page)))]
    reading, whole = READERS.reader(release.engine)(cut, with_ttft=True), release.reading
    for part, all_of_it in ((reading.waiting, whole.waiting), (reading.running, whole.running)):
        assert part is None or (all_of_it is not None and 0 <= part <= all_of_it)
