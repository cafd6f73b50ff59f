"""OpenAI's error form, in a body and inside a stream.

Shape: `{"error": {"message", "type", "param", "code"}}`. Which type, code and status belong to
a reason is `wire/status.py`'s to say; this module only renders.
"""

import math
from dataclasses import dataclass

import orjson

from services.core.outcomes import DropReason
from services.core.units import NS_PER_MS, NS_PER_S, Duration
from services.wire.status import STATUS, DoorReason, StatusRow

DROP_REASON_HEADER = "x-gir-drop-reason"
FIELD_DROP_REASON_HEADER = "x-llm-d-request-dropped-reason"
"""The field's own word for the same, so that gateways and dashboards made for other pickers read it."""


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """A refusal ready for the wire: status, header pairs (lower-case names), body bytes."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def error_body(row: StatusRow, message: str, param: str | None = None) -> bytes:
    """Return the JSON error document of `row`."""
    return orjson.dumps({"error": {"message": message, "type": row.type, "param": param, "code": row.code}})


def error_answer(
    reason: DropReason | DoorReason,
    message: str,
    *,
    param: str | None = None,
    retry_after: Duration | None = None,
) -> ErrorAnswer:
    """Return the complete HTTP answer for `reason`.

    `retry_after` is sent twice: `Retry-After` in whole seconds rounded up (RFC 9110 section 10.2.3),
    and `retry-after-ms`, which OpenAI's clients prefer and which keeps sub-second waits short.
    """
    row = STATUS[reason]
    headers = [("content-type", "application/json"), (DROP_REASON_HEADER, reason.value)]
    if row.dropped:
        headers.append((FIELD_DROP_REASON_HEADER, row.dropped))
    if row.should_retry is not None:
        headers.append(("x-should-retry", "true" if row.should_retry else "false"))
    if retry_after is not None:
        headers.append(("retry-after", str(max(1, math.ceil(retry_after / NS_PER_S)))))
        headers.append(("retry-after-ms", str(max(1, math.ceil(retry_after / NS_PER_MS)))))
    return ErrorAnswer(row.http, tuple(headers), error_body(row, message, param))


def refusal_answer(status: int, reason: str, message: str) -> ErrorAnswer:
    """Return the answer to a request that the HTTP machine refused (bad framing, too large, too slow).

    `reason` is the machine's own word and becomes the code; 413 is a row of the status table.
    """
    if status == STATUS[DoorReason.BODY_TOO_LARGE].http:
        return error_answer(DoorReason.BODY_TOO_LARGE, message)
    row = StatusRow(status, 0, "invalid_request_error" if status < 500 else "server_error", reason)
    return ErrorAnswer(status, (("content-type", "application/json"),), error_body(row, message))


def in_band_error(reason: DropReason | DoorReason, message: str) -> bytes:
    """Return one SSE event that tells a client, after its first byte, that the stream failed.

    OpenAI's clients raise on a `data:` event whose JSON holds `error`; `[DONE]` does not follow, so
    that no client mistakes a broken stream for a finished one.
    """
    return b"data: " + error_body(STATUS[reason], message) + b"\n\n"
