"""Ways to cut a byte string into reads, for the split-point properties of the HTTP machines."""

from itertools import pairwise

from hypothesis import strategies as st


def every_cut(data: bytes) -> list[list[bytes]]:
    """All ways to receive data in two reads, and one byte per read."""
    return [[data[:at], data[at:]] for at in range(1, len(data))] + [
        [data[i : i + 1] for i in range(len(data))]
    ]


@st.composite
def cuts(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Draw a way to receive data in several reads."""
    at = sorted(draw(st.sets(st.integers(1, max(1, len(data) - 1)), max_size=12)))
    bounds = [0, *[point for point in at if point < len(data)], len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]
