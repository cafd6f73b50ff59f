"""Heads on the wire: status lines, header blocks, and which headers may travel a hop further.

Pure rendering (RFC 9110 7.6.1 for hop-by-hop headers, RFC 9112 for framing). Values come from
llhttp's strict mode or from our own code, so no CR, LF or NUL can be in them. Apart from the
parsers because both directions of both tiers render with it.
"""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

Headers = Iterable[tuple[bytes, bytes]]

HOP_BY_HOP: Final = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    )
)

# What a relayed request never carries as it came: framing and Host are set anew for each attempt;
# Expect has been answered here; the observer reads the response, so it must not be compressed.
NOT_FORWARDED: Final = HOP_BY_HOP | {b"host", b"content-length", b"expect", b"accept-encoding"}

_STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode("ascii"))
    for status in HTTPStatus
}

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


def status_line(status: int) -> bytes:
    """Return the HTTP/1.1 status line with its CRLF; an unregistered status has an empty reason."""
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


def header_block(headers: Headers) -> bytes:
    """Render header lines, each with its CRLF, without the blank line that ends a head."""
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


def forwardable_block(headers: Headers, *, without: frozenset[bytes] = frozenset()) -> bytes:
    """Render a request's headers for the next hop: end-to-end ones only.

    headers are (lowercase name, value) pairs; `without` names further lowercase headers to leave out
    (credentials, headers the caller sets itself). Host, Content-Length and Expect are left out too:
    `request_head` sets them; Accept-Encoding becomes `identity`.
    """
    dropped = NOT_FORWARDED | without if without else NOT_FORWARDED
    named = _connection_named(headers)
    if named:
        dropped |= named
    lines = [b"%b: %b\r\n" % pair for pair in headers if pair[0] not in dropped]
    lines.append(b"accept-encoding: identity\r\n")
    return b"".join(lines)


def end_to_end(headers: Headers, *, without: frozenset[bytes] = frozenset()) -> list[tuple[bytes, bytes]]:
    """Return a response's end-to-end headers: no hop-by-hop ones, none that Connection names."""
    dropped = HOP_BY_HOP | without if without else HOP_BY_HOP
    named = _connection_named(headers)
    if named:
        dropped |= named
    return [pair for pair in headers if pair[0] not in dropped]


def request_head(method: bytes, target: bytes, authority: bytes, block: bytes, body_size: int) -> bytes:
    """Render a request head for an upstream.

    block comes from `forwardable_block` or `header_block`; body_size in bytes. A method that
    has no body by definition gets no Content-Length unless there is one.
    """
    if body_size or method not in _BODYLESS:
        return b"%b %b HTTP/1.1\r\nhost: %b\r\n%bcontent-length: %d\r\n\r\n" % (
            method,
            target,
            authority,
            block,
            body_size,
        )
    return b"%b %b HTTP/1.1\r\nhost: %b\r\n%b\r\n" % (method, target, authority, block)


_BODYLESS: Final = frozenset((b"GET", b"HEAD", b"DELETE", b"OPTIONS", b"TRACE"))
_PERSISTENCE_ONLY: Final = frozenset((b"keep-alive", b"close", b"Keep-Alive", b"Close"))


def _connection_named(headers: Headers) -> frozenset[bytes]:
    """Return the header names that Connection lists (RFC 9110 7.6.1); usually none."""
    named: frozenset[bytes] = frozenset()
    for name, value in headers:
        if name == b"connection" and value not in _PERSISTENCE_ONLY:
            named |= frozenset(token.strip().lower() for token in value.split(b","))
    return named
