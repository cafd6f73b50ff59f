"""Names of the protocol: which headers end at the picker, and which generation of a name wins."""

import pytest

from services.wire.ext_proc import metadata


@pytest.mark.parametrize(
    "name",
    [
        *metadata.FAIRNESS_ID,
        *metadata.OBJECTIVE,
        *metadata.MODEL_REWRITE,
        *metadata.TTFT_SLO_MS,
        *metadata.TPOT_SLO_MS,
        *metadata.VIDEO_FPS,
        *metadata.VIDEO_DURATION_S,
        *metadata.VIDEO_RESOLUTION,
        metadata.PREFILLER,
        metadata.ENCODERS,
        metadata.DATA_PARALLEL,
        metadata.KV_SOURCE,
        metadata.SESSION_TOKEN,
        metadata.DESTINATION.encode(),
        metadata.DROPPED_REASON.encode(),
        metadata.TEST_SELECTION,
        metadata.TEST_SERVED.encode(),
        b"x-gir-hand-off",
        b"x_gateway_destination_endpoint",
    ],
)
def test_control_headers_end_here(name: bytes) -> None:
    assert metadata.is_control(name)


@pytest.mark.parametrize(
    "name",
    [
        metadata.REQUEST_ID,
        metadata.TRACE_PARENT,
        metadata.PREFER,
        metadata.AI_GATEWAY_MODEL,
        b"authorization",
    ],
)
def test_other_headers_travel_on(name: bytes) -> None:
    assert not metadata.is_control(name)


@pytest.mark.parametrize(
    ("headers", "found"),
    [((0, 1), b"0"), ((1,), b"1"), ((), None)],
)
def test_the_younger_name_wins(headers: tuple[int, ...], found: bytes | None) -> None:
    given = {metadata.OBJECTIVE[which]: b"%d" % which for which in headers}

    def header(name: bytes) -> bytes | None:
        return given.get(name)

    assert metadata.first_of(header, metadata.OBJECTIVE) == found


def test_repeated_lines_of_a_header_are_one_value() -> None:
    """Two hand-off tokens are no token, rather than whichever came last."""
    header = metadata.lookup(((b"a", b"1"), (b"b", b"2"), (b"a", b"3")))
    assert (header(b"a"), header(b"b"), header(b"c")) == (b"1, 3", b"2", None)
