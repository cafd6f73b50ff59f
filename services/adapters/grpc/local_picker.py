"""The client side of `gir.v1.LocalPicker`: one warm channel per picker, one bounded call per pick.

A picker that refuses, hangs or is gone costs its time limit and nothing else: the caller falls back
to the cluster's gateway.
"""

from typing import Final

import grpc
import grpc.aio

from services.adapters.grpc.channel import open_channel
from services.wire.gen.gir.v1 import picker_pb2, picker_pb2_grpc

CALL_TIMEOUT_S: Final = 1.0
"""As long as a connect may take; a slower picker would cost more than going through its gateway."""
CHANNELS_MAX: Final = 1000
"""More pickers than any fleet has; bounds descriptors if a policy names ever new addresses."""


class GrpcLocalPicker:
    """`LocalPicker` port over gRPC. Addresses come from policy only."""

    def __init__(self) -> None:
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def pick(self, address: str, hand_off_token: str, model: str) -> str | None:
        """Return a pod's `host:port`, None when the picker refuses or cannot be asked in time."""
        stub = picker_pb2_grpc.LocalPickerStub(await self._channel(address))
        try:
            answer = await stub.Pick(
                picker_pb2.PickRequest(model=model),
                metadata=(("x-gir-hand-off", hand_off_token),),
                timeout=CALL_TIMEOUT_S,
            )
        except grpc.aio.AioRpcError:
            return None
        return answer.endpoint.address or None

    async def close(self) -> None:
        """Close every channel."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def _channel(self, address: str) -> grpc.aio.Channel:
        channel = self._channels.get(address)
        if channel is None:
            if len(self._channels) >= CHANNELS_MAX:
                await self._channels.pop(next(iter(self._channels))).close()
            channel = self._channels[address] = open_channel(address)
        return channel
