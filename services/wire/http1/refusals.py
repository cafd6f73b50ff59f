"""What a request is refused for before it becomes one: status, word and sentence of each.

Values only, and which of them an error of llhttp stands for. Apart from the request machine, which
says when, and because doors render refusals without parsing.
"""

from dataclasses import dataclass
from typing import Final

import httptools


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that must be answered with an error and a closed connection.

    status: HTTP status, 4xx or 5xx. reason: one word, stable, for metrics and error codes.
    detail: one sentence for the client; holds nothing the client sent.
    """

    status: int
    reason: str
    detail: str


class Refused(Exception):  # noqa: N818  # control flow through llhttp, not an error anybody sees
    """Raised in a callback to stop llhttp; `feed` turns it into its refusal."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal


BAD_MESSAGE: Final = Refusal(400, "bad_message", "The request is not valid HTTP/1.1.")
BAD_FRAMING: Final = Refusal(400, "bad_framing", "The length of the request body is given twice or wrongly.")
BAD_TARGET: Final = Refusal(400, "bad_target", "The request target is not a path.")
BAD_METHOD: Final = Refusal(501, "unknown_method", "The request method is not implemented.")
HOST_NOT_ONE: Final = Refusal(400, "bad_host", "The request must have exactly one Host header.")
BODY_TOO_LARGE: Final = Refusal(413, "body_too_large", "The request body is larger than this server accepts.")
TARGET_TOO_LONG: Final = Refusal(
    414, "target_too_long", "The request target is longer than this server accepts."
)
EXPECTATION_UNKNOWN: Final = Refusal(417, "unknown_expectation", "Only `Expect: 100-continue` is understood.")
TOO_MANY_PIPELINED: Final = Refusal(429, "too_many_pipelined", "Too many requests were sent without waiting.")
HEAD_TOO_LARGE: Final = Refusal(431, "head_too_large", "The request head is larger than this server accepts.")
CODING_UNKNOWN: Final = Refusal(501, "unknown_coding", "Only the transfer coding `chunked` is implemented.")
NO_TUNNEL: Final = Refusal(501, "no_tunnel", "This server opens no tunnels.")
VERSION_UNKNOWN: Final = Refusal(505, "unknown_version", "This server speaks HTTP/1.1 and HTTP/1.0.")


def classify(error: httptools.HttpParserError) -> Refusal:
    """Name what llhttp refused, from its type and the header its message is about."""
    if isinstance(error, httptools.HttpParserInvalidMethodError):
        return BAD_METHOD
    if isinstance(error, httptools.HttpParserInvalidURLError):
        return BAD_TARGET
    message = str(error)
    if "HTTP version" in message:
        return VERSION_UNKNOWN
    if "Content-Length" in message or "Transfer-Encoding" in message or "chunk" in message.lower():
        return BAD_FRAMING
    return BAD_MESSAGE
