"""Reading of requests that may be any bytes: what is no message is refused, and costs no traceback.

gRPC parses a request before the handler that could answer for it, and logs a traceback and tells the caller
the exception when that fails. Here a unary request that cannot be read becomes `UNREADABLE`, which the
guards of `failures` refuse. Apart from the server so that what is registered there needs no knowledge of it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import grpc
from google.protobuf.message import DecodeError

UNREADABLE: Final = object()
"""Stands for a request that is no message of its method; guards refuse it before any handler sees it."""

# Generic for type checkers only.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class Registry:
    """Takes a servicer's handlers as `grpc.aio.Server` does and hands them to it with tolerant readers."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Generated code registers every method a second time, by name; that one is served."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        """Register the methods of one service."""
        self._server.add_registered_method_handlers(
            service, {name: _tolerant(handler) for name, handler in handlers.items()}
        )


def _tolerant(handler: Handler) -> Handler:
    """Return the handler with a reader that does not raise; a stream's messages are read inside its guard."""
    read = handler.request_deserializer
    if handler.request_streaming or read is None:
        return handler

    def read_any(data: bytes) -> Any:
        try:
            return read(data)
        except DecodeError:
            return UNREADABLE

    make: Callable[..., Handler] = grpc.unary_unary_rpc_method_handler
    behavior: object = handler.unary_unary
    if handler.response_streaming:
        make, behavior = grpc.unary_stream_rpc_method_handler, handler.unary_stream
    return make(behavior, request_deserializer=read_any, response_serializer=handler.response_serializer)
