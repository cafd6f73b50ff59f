"""Units convert without surprises."""

from hypothesis import given
from hypothesis import strategies as st

from services.core.units import Instant, after, in_ms, ms, seconds, since


def test_spans_are_whole_nanoseconds() -> None:
    assert ms(1.5) == 1_500_000
    assert seconds(0.25) == 250_000_000
    assert in_ms(seconds(2)) == 2000.0
    assert isinstance(ms(0.0000004), int)


@given(st.integers(0, 2**62), st.integers(-(2**40), 2**40))
def test_after_and_since_are_inverse(start: int, span: int) -> None:
    """Invariant: since(start, after(start, span)) == span, exactly."""
    assert since(Instant(start), after(Instant(start), span)) == span
