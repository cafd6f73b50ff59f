"""Content codings of request bodies: read within a bound, or refused with the right status."""

import gzip
import zlib

import pytest

from services.wire.content_coding import CodingError, codings_of, decoded
from services.wire.status import DoorReason

BODY = b'{"model":"m"}'
LIMIT = 1 << 16
RAW = zlib.compressobj(wbits=-zlib.MAX_WBITS)
RAW_DEFLATE = RAW.compress(BODY) + RAW.flush()


@pytest.mark.parametrize(
    ("header", "codings"),
    [
        (None, ()),
        (b"", ()),
        (b"identity", ()),
        (b"GZip", (b"gzip",)),
        (b"gzip, identity , deflate", (b"gzip", b"deflate")),
    ],
)
def test_codings_of_a_header(header: bytes | None, codings: tuple[bytes, ...]) -> None:
    assert codings_of(header) == codings


@pytest.mark.parametrize(
    ("codings", "body"),
    [
        ((), BODY),
        ((b"gzip",), gzip.compress(BODY)),
        ((b"x-gzip",), gzip.compress(BODY)),
        ((b"gzip",), gzip.compress(BODY[:5]) + gzip.compress(BODY[5:])),
        ((b"deflate",), zlib.compress(BODY)),
        ((b"deflate",), RAW_DEFLATE),
        ((b"gzip", b"gzip"), gzip.compress(gzip.compress(BODY))),
        ((b"gzip",), gzip.compress(BODY * 1000)),
    ],
)
def test_readable_bodies_are_read(codings: tuple[bytes, ...], body: bytes) -> None:
    assert decoded(body, codings, LIMIT) in (BODY, BODY * 1000)


@pytest.mark.parametrize(
    ("codings", "body", "reason"),
    [
        ((b"br",), BODY, DoorReason.UNSUPPORTED_ENCODING),
        ((b"zstd",), BODY, DoorReason.UNSUPPORTED_ENCODING),
        ((b"bogus",), BODY, DoorReason.UNSUPPORTED_ENCODING),
        ((b"gzip",) * 3, BODY, DoorReason.UNSUPPORTED_ENCODING),
        ((b"gzip",), BODY, DoorReason.INVALID_VALUE),
        ((b"gzip",), b"", DoorReason.INVALID_VALUE),
        ((b"gzip",), gzip.compress(BODY)[:-5], DoorReason.INVALID_VALUE),
        ((b"gzip",), gzip.compress(BODY) + b"more", DoorReason.INVALID_VALUE),
        ((b"deflate",), zlib.compress(BODY)[:-1], DoorReason.INVALID_VALUE),
        ((b"gzip",), gzip.compress(bytes(LIMIT + 1)), DoorReason.BODY_TOO_LARGE),
        ((b"gzip",), gzip.compress(bytes(LIMIT)) + gzip.compress(b"x"), DoorReason.BODY_TOO_LARGE),
        ((b"gzip", b"gzip"), gzip.compress(gzip.compress(bytes(64 << 20))), DoorReason.BODY_TOO_LARGE),
    ],
)
def test_others_are_refused(codings: tuple[bytes, ...], body: bytes, reason: DoorReason) -> None:
    with pytest.raises(CodingError) as caught:
        decoded(body, codings, LIMIT)
    assert caught.value.reason is reason


def test_the_bound_is_exact() -> None:
    assert decoded(gzip.compress(bytes(LIMIT)), (b"gzip",), LIMIT) == bytes(LIMIT)
