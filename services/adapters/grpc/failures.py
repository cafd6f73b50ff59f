"""Failures of calls, on both ends: refusals by the status table, faults without their text.

A server answers a reason with the code of `wire.status` and says the reason in trailing metadata;
an unforeseen exception becomes INTERNAL, is logged, and tells the caller nothing else. A client
turns what it gets into the errors of `ports`.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.message import DecodeError

from services.adapters.grpc.metadata import (
    DROP_REASON,
    REQUEST_ID,
    RETRY_AFTER_MS,
    AmbiguousMetadataError,
    single,
)
from services.adapters.grpc.reading import UNREADABLE
from services.adapters.ports import AdapterError, UnreachableError
from services.core.outcomes import DropReason
from services.core.units import Duration
from services.wire.errors import UndecodableError
from services.wire.routing_codec import whole_ms
from services.wire.status import STATUS, DoorReason

_LOG = logging.getLogger(__name__)
_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}
_NO_MESSAGE = "request: the bytes are no message of this method"
_AWAY = frozenset((grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED))

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
Context = grpc.aio.ServicerContext[Any, Any]


class CallRefusedError(AdapterError):
    """The peer answered with a refusal: its gRPC code, its reason word (may be empty) and when to come back."""

    def __init__(
        self, message: str, code: int, reason: str, retry_after_ms: int | None, request_id: str
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.retry_after_ms = retry_after_ms
        self.request_id = request_id


async def refuse(
    context: Context,
    reason: DropReason | DoorReason,
    message: str,
    *,
    retry_after: Duration | None = None,
    request_id: str = "",
) -> NoReturn:
    """End the call with the reason's code, the message, and the reason in trailing metadata."""
    trailing = [(DROP_REASON, reason.value)]
    if retry_after is not None:
        trailing.append((RETRY_AFTER_MS, str(whole_ms(retry_after))))
    if request_id:
        trailing.append((REQUEST_ID, request_id))
    await context.abort(_CODES[STATUS[reason].grpc], message, tuple(trailing))


def guard_unary(
    handler: Callable[[RequestT, Context], Awaitable[ResponseT]],
) -> Callable[[RequestT, Context], Awaitable[ResponseT]]:
    """Wrap a unary handler: unreadable requests are INVALID_ARGUMENT, unforeseen exceptions INTERNAL."""

    async def guarded(request: RequestT, context: Context) -> ResponseT:
        if request is UNREADABLE:
            await refuse(context, DoorReason.INVALID_VALUE, _NO_MESSAGE)
        try:
            return await handler(request, context)
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001  # The wall: whatever it is, the caller must not read it.
            return await _answer_fault(context, error)

    return guarded


def guard_stream(
    handler: Callable[[RequestT, Context], AsyncIterator[ResponseT]],
) -> Callable[[RequestT, Context], AsyncIterator[ResponseT]]:
    """Wrap a handler that yields answers, as `guard_unary` does; `RequestT` may itself be an iterator."""

    async def guarded(request: RequestT, context: Context) -> AsyncIterator[ResponseT]:
        if request is UNREADABLE:
            await refuse(context, DoorReason.INVALID_VALUE, _NO_MESSAGE)
        try:
            async for response in handler(request, context):
                yield response
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001  # The wall: whatever it is, the caller must not read it.
            await _answer_fault(context, error)

    return guarded


def translated(error: grpc.aio.AioRpcError, what: str) -> AdapterError:
    """Return a failed call as an error of ours; `what` says whom was asked for what.

    A peer that cannot be reached or does not answer in time is `UnreachableError`; one that answered
    with a refusal is `CallRefusedError`, even if its code is UNAVAILABLE.
    """
    trailing = tuple(error.trailing_metadata() or ())
    reason = _first(trailing, DROP_REASON)
    if not reason and error.code() in _AWAY:
        return UnreachableError(f"{what}: {error.details() or error.code().name}")
    wait = _first(trailing, RETRY_AFTER_MS)
    return CallRefusedError(
        f"{what}: {error.details() or error.code().name}",
        error.code().value[0],
        reason,
        int(wait) if wait.isascii() and wait.isdigit() and len(wait) <= 15 else None,
        _first(trailing, REQUEST_ID),
    )


async def _answer_fault(context: Context, error: Exception) -> NoReturn:
    if isinstance(error, DecodeError):
        await refuse(context, DoorReason.INVALID_VALUE, _NO_MESSAGE)
    if isinstance(error, UndecodableError):
        await refuse(context, DoorReason.INVALID_VALUE, str(error))
    if isinstance(error, AmbiguousMetadataError):
        await refuse(context, DoorReason.UNAUTHENTICATED, str(error))
    _LOG.error("a gRPC handler failed", exc_info=error)
    await refuse(context, DoorReason.INTERNAL, "internal error")


def _first(metadata: tuple[tuple[str, str | bytes], ...], key: str) -> str:
    try:
        return single(metadata, key) or ""
    except AmbiguousMetadataError:
        return ""
