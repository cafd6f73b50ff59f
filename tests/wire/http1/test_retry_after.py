"""Retry-After in its three forms, and what is not understood."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.units import WallMs, ms, seconds
from services.wire.http1.retry_after import RETRY_AFTER_MAX, retry_after_of

NOW = WallMs(784_111_777_000)  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize(
    ("headers", "span"),
    [
        ([], None),
        ([(b"retry-after", b"2")], seconds(2)),
        ([(b"retry-after", b"1.5")], ms(1500)),
        ([(b"retry-after", b"Sun, 06 Nov 1994 08:49:40 GMT")], seconds(3)),
        ([(b"retry-after", b"Sun, 06 Nov 1994 08:49:00 GMT")], 0),
        ([(b"retry-after", b"2"), (b"retry-after-ms", b"120")], ms(120)),
        ([(b"retry-after-ms", b"soon"), (b"retry-after", b"2")], seconds(2)),
        ([(b"retry-after", b"5"), (b"retry-after", b"2")], seconds(5)),
        ([(b"retry-after", b"5"), (b"retry-after", b"tomorrow")], seconds(5)),
        ([(b"retry-after", b"")], None),
        ([(b"retry-after", b"Fri, 31 Dec 99999 23:59:59 GMT")], None),
        ([(b"retry-after", b"99999999")], RETRY_AFTER_MAX),
        ([(b"retry-after", b"-1")], None),
        ([(b"retry-after", b"1e9")], None),
        ([(b"retry-after", b"tomorrow")], None),
        ([(b"retry-after", b"\xff")], None),
    ],
)
def test_f076_every_form_is_read_and_what_cannot_be_is_no_wish(
    headers: list[tuple[bytes, bytes]], span: int | None
) -> None:
    assert retry_after_of(headers, NOW) == span


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_any_value_is_a_bounded_span_or_none(coarse: bytes, fine: bytes) -> None:
    """For any header bytes the answer is None or lies in 0..RETRY_AFTER_MAX."""
    span = retry_after_of([(b"retry-after", coarse), (b"retry-after-ms", fine)], NOW)
    assert span is None or 0 <= span <= RETRY_AFTER_MAX
