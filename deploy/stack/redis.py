"""One Redis server, and one Sentinel that watches it, on loopback.

Starts Debian's `redis-server` as it is. Without `keep_data` nothing is written to disk and a restarted server
comes back empty, which is the case the router has to survive; with it, the data outlives a restart.
"""

import shutil
from pathlib import Path

import redis

from deploy.stack.errors import PartMissingError
from deploy.stack.ports import free_port
from deploy.stack.process import Process

START_TIMEOUT_S = 15.0


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise PartMissingError(f"{name} is not on PATH")
    return path


class RedisServer:
    """A Redis server that can be stopped, killed, paused and started again on the same port."""

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        keep_data: bool = False,
        outlives_parent: bool = False,
    ) -> None:
        self.port = port or free_port()
        settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(directory),
            "save": "",
            "appendonly": "yes" if keep_data else "no",
            "appendfsync": "always",
        }
        options = [word for name, value in settings.items() for word in (f"--{name}", value)]
        self.process = Process(
            "redis", [_program("redis-server"), *options], directory, outlives_parent=outlives_parent
        )

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The URL that redis-py and `--redis` take."""
        return f"redis://{self.address}/0"

    def start(self) -> None:
        """Starts the server and returns once it answers PING."""
        self.process.start()
        self.process.wait_ready(lambda: answers_ping(self.port), START_TIMEOUT_S)

    def stop(self) -> None:
        """Ends the server the orderly way (SIGTERM)."""
        self.process.stop()

    def restart(self) -> None:
        """Stops and starts the server on the same port; its `run_id` changes, and without `keep_data` its data go."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """Kills the server at once (SIGKILL)."""
        self.process.kill()

    def pause(self) -> None:
        """Freezes the server (SIGSTOP): connections stay open and nothing answers."""
        self.process.pause()

    def resume(self) -> None:
        """Lets a frozen server go on."""
        self.process.resume()

    def flush(self) -> None:
        """Deletes every key of every database (FLUSHALL); the server's `run_id` stays."""
        with redis.Redis(port=self.port) as client:
            client.flushall()


class RedisSentinel:
    """One Sentinel with quorum one, watching the server on `watched_port` under the name `gir`."""

    def __init__(
        self, directory: Path, watched_port: int, *, port: int | None = None, outlives_parent: bool = False
    ) -> None:
        self.port = port or free_port()
        self._settings_path = directory / "sentinel.conf"
        self._settings = (
            f"port {self.port}\nbind 127.0.0.1\ndir {directory}\n"
            f"sentinel monitor gir 127.0.0.1 {watched_port} 1\n"
            "sentinel down-after-milliseconds gir 2000\nsentinel failover-timeout gir 10000\n"
        )
        command = [_program("redis-sentinel"), str(self._settings_path)]
        self.process = Process("sentinel", command, directory, outlives_parent=outlives_parent)

    def start(self) -> None:
        """Starts Sentinel and returns once it answers PING."""
        self._settings_path.parent.mkdir(parents=True, exist_ok=True)
        # Sentinel rewrites this file as it learns; each start begins from what is known here.
        self._settings_path.write_text(self._settings)
        self.process.start()
        self.process.wait_ready(lambda: answers_ping(self.port), START_TIMEOUT_S)

    def stop(self) -> None:
        """Ends Sentinel the orderly way (SIGTERM)."""
        self.process.stop()


def answers_ping(port: int) -> bool:
    """True when a Redis or Sentinel on `port` of loopback answers PING within a second."""
    try:
        with redis.Redis(port=port, socket_timeout=1, socket_connect_timeout=1) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False
