"""Content codings of request bodies (RFC 9110 8.4): read through gzip and deflate, within a bound.

A body is decoded so that its model can be read; whether it travels on coded or plain is the caller's. What
it inflates to is never held beyond the bound, however small the coded bytes are.
"""

import zlib

from services.wire.status import DoorReason

CODINGS_MAX = 2
"""Codings stacked upon each other; no client needs two, and each multiplies what a bomb can do."""
_ANY_WRAPPER_BITS = 32 + zlib.MAX_WBITS
"""zlib finds out by itself whether a gzip or a zlib header comes."""
_IDENTITY = frozenset((b"identity", b""))
_READABLE = frozenset((b"gzip", b"x-gzip", b"deflate"))


class CodingError(Exception):
    """The body cannot be read through its codings; `reason` is a row of the status table."""

    def __init__(self, reason: DoorReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def codings_of(content_encoding: bytes | None) -> tuple[bytes, ...]:
    """Return the codings in the order they were applied, `identity` left out; () for a plain body."""
    if content_encoding is None:
        return ()
    names = (part.strip().lower() for part in content_encoding.split(b","))
    return tuple(name for name in names if name not in _IDENTITY)


def decoded(body: bytes, codings: tuple[bytes, ...], max_bytes: int) -> bytes:
    """Return the plain body. Raises `CodingError`: a coding not read here, a cut body, or more than `max_bytes`."""
    if len(codings) > CODINGS_MAX or not _READABLE.issuperset(codings):
        raise CodingError(DoorReason.UNSUPPORTED_ENCODING, "Content codings read here are gzip and deflate.")
    for _ in codings:
        body = _inflated(body, max_bytes)
    return body


def _inflated(body: bytes, max_bytes: int) -> bytes:
    raw_deflate = not _has_wrapper(body)
    pieces: list[bytes] = []
    left = max_bytes
    while True:
        machine = zlib.decompressobj(-zlib.MAX_WBITS if raw_deflate else _ANY_WRAPPER_BITS)
        try:
            piece = machine.decompress(body, left + 1)
        except zlib.error:
            raise _broken() from None
        left -= len(piece)
        if left < 0:
            raise CodingError(
                DoorReason.BODY_TOO_LARGE, f"The body decodes to more than the limit of {max_bytes} bytes."
            )
        pieces.append(piece)
        if not machine.eof:
            raise _broken()
        body = machine.unused_data
        # A gzip body may have several members (RFC 1952 2.2); anything else behind the end is no body.
        if not body:
            return b"".join(pieces)
        if not body.startswith(b"\x1f\x8b"):
            raise _broken()


def _has_wrapper(body: bytes) -> bool:
    """Whether a gzip or zlib header comes first; some clients send `deflate` without (RFC 9110 8.4.1.2)."""
    if body.startswith(b"\x1f\x8b"):
        return True
    return len(body) >= 2 and body[0] & 0x0F == zlib.DEFLATED and (body[0] << 8 | body[1]) % 31 == 0


def _broken() -> CodingError:
    return CodingError(DoorReason.INVALID_VALUE, "The body is cut or is not what its content coding says.")
