"""Bounds on HTTP/1.1 messages, each with a unit and what it protects.

The machines of this package enforce them; nothing here reads settings. They are apart so
that a door can hand one frozen value to every connection it accepts.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What a client may send before it is refused.

    head_bytes: request line and header lines together; 431 above it. 32 KiB holds the longest
    bearer token (8 KiB) with room for tracing headers, and bounds what an idle client can pin.
    target_bytes: the request target; 414 above it.
    header_count: header lines; 431 above it, because each one costs a call in the parser.
    body_bytes: decoded body; 413 above it, before it is read whenever Content-Length says so.
    pipelined_requests: complete requests that one read may hold; more is a flood, answered 429
    after the earlier ones.
    """

    head_bytes: int = 32 * 1024
    target_bytes: int = 8 * 1024
    header_count: int = 128
    body_bytes: int = 10 * 1024 * 1024
    pipelined_requests: int = 32


@dataclass(frozen=True, slots=True)
class ResponseLimits:
    """What an upstream may send before its response counts as malformed.

    head_bytes: status line and header lines, interim (1xx) heads included one by one.
    interim_heads: 1xx heads before the final one; more means a peer that never answers.
    """

    head_bytes: int = 64 * 1024
    header_count: int = 256
    interim_heads: int = 8
