"""Saturation of one pod: the larger of queue and cache, over what is known."""

import pytest

from services.core.pods.reading import pod_saturation


@pytest.mark.parametrize(
    ("waiting", "kv_use", "expected"),
    [(0, 0.4, 0.5), (10, 0.4, 2.0), (None, 0.8, 1.0), (5, None, 1.0), (None, None, None), (0, 1.0, 1.25)],
)
def test_saturation(waiting: float | None, kv_use: float | None, expected: float | None) -> None:
    assert pod_saturation(waiting, kv_use) == (None if expected is None else pytest.approx(expected))
