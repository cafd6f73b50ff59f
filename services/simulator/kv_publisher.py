"""The ZeroMQ sockets of a rank's KV events: PUB for what happens, ROUTER for what somebody missed.

Frames are vLLM's: [topic][8-byte big-endian sequence][msgpack]; a replay answers each request [start] with
[sequence][msgpack] messages and one with sequence -1. Contents are made in `kv_events`. A PUB socket never
blocks: with nobody listening, or a slow listener, messages are dropped, and the replay buffer still has them.
"""

from collections.abc import Sequence

import zmq
import zmq.asyncio

from services.adapters.system.tasks import TaskScope
from services.simulator.events import KvChange
from services.simulator.kv_events import END_OF_REPLAY, SEQUENCE_BYTES, KvEventLog

HIGH_WATER_MARK = 100_000
"""vLLM's default; messages one subscriber may lag behind before it loses some."""


class KvPublisher:
    """Publishes one rank's events under `topic`. Raises OSError when an address cannot be had.

    `endpoint` and `replay_endpoint` (empty: no replay) are `tcp://host:port`; port 0 takes a free one, and
    the attributes of these names say which.
    """

    def __init__(self, log: KvEventLog, topic: str, endpoint: str, replay_endpoint: str) -> None:
        self._log = log
        self._topic = topic.encode()
        self._tasks = TaskScope(_raise)
        self._replay: zmq.asyncio.Socket | None = None
        self.losing = False
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._pub = context.socket(zmq.PUB)
        try:
            self._pub.set_hwm(HIGH_WATER_MARK)
            self.endpoint = _bound(self._pub, endpoint)
            self.replay_endpoint = ""
            if replay_endpoint:
                self._replay = zmq.asyncio.Context.instance().socket(zmq.ROUTER)
                self.replay_endpoint = _bound(self._replay, replay_endpoint)
                self._tasks.spawn(self._serve_replay(self._replay), "kv-replay")
        except zmq.ZMQError as error:
            self.abort()
            raise OSError(error.errno, error.strerror) from None

    def publish(self, changes: Sequence[KvChange], at_s: float) -> None:
        """Send a batch observed at wall time `at_s`; while `losing`, it is kept for replay and not sent."""
        number, payload = self._log.append(changes, at_s)
        if not self.losing:
            self._pub.send_multipart((self._topic, number, payload), flags=zmq.NOBLOCK)

    async def close(self) -> None:
        """Close both sockets; what was not sent is dropped. Safe to call again or after `abort`."""
        await self._tasks.close()
        self.abort()

    def abort(self) -> None:
        """Close both sockets at once, as a host that dies does."""
        self._pub.close(linger=0)
        if self._replay is not None:
            self._replay.close(linger=0)

    async def _serve_replay(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            frames = await socket.recv_multipart()
            # [client, empty, start]; anything else is ignored, as vLLM does.
            if len(frames) != 3 or len(frames[2]) != SEQUENCE_BYTES:
                continue
            client = frames[0]
            for number, payload in self._log.since(int.from_bytes(frames[2], "big")):
                await socket.send_multipart((client, b"", number, payload))
            await socket.send_multipart((client, b"", END_OF_REPLAY, b""))


def _bound(socket: "zmq.Socket[bytes] | zmq.asyncio.Socket", endpoint: str) -> str:
    socket.bind(endpoint)
    return socket.get_string(zmq.LAST_ENDPOINT).rstrip("\0")


def _raise(_: str, failure: BaseException) -> None:
    raise failure
