"""Model servers in virtual time: the `MetricsSource` port answered from a script, counting what is asked."""

from collections import Counter

from services.adapters.memory.clock import VirtualClock
from services.adapters.model_server.engines import ENGINES
from services.adapters.ports import ScrapePage
from services.core.units import Duration, Instant, ms

VERSION_PATHS = frozenset(path.removeprefix("/") for kind in ENGINES.values() for path in kind.version_paths)
PAGE = b"vllm:num_requests_waiting 0\nvllm:num_requests_running 1\nvllm:kv_cache_usage_perc 0.1\n"


class Server:
    """One server: what its pages say, how long it takes, whether it fails. All may change while it runs."""

    def __init__(self) -> None:
        self.page = PAGE
        self.version = b'{"version": "0.11.0"}'
        self.version_path = "version"
        self.takes = ms(1)
        self.failure = ""
        self.asked: list[Instant] = []
        self.versions_asked = 0
        self.at_once = 0
        self.most_at_once = 0


class VirtualServers:
    """`MetricsSource` over servers by their address."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.servers: dict[str, Server] = {}
        self.paths: Counter[str] = Counter()

    def __getitem__(self, address: str) -> Server:
        return self.servers.setdefault(address, Server())

    async def fetch(self, url: str, timeout: Duration, max_bytes: int) -> ScrapePage:
        address, _, path = url.removeprefix("http://").partition("/")
        self.paths[f"/{path}"] += 1
        server = self[address]
        server.at_once += 1
        server.most_at_once = max(server.most_at_once, server.at_once)
        try:
            return await self._answer(server, path, timeout, max_bytes)
        finally:
            server.at_once -= 1

    async def _answer(self, server: Server, path: str, timeout: Duration, max_bytes: int) -> ScrapePage:
        if path in VERSION_PATHS:
            server.versions_asked += 1
        else:
            server.asked.append(self._clock.now())
        if server.failure:
            return ScrapePage(b"", server.failure, self._clock.now())
        await self._clock.sleep(min(server.takes, timeout))
        if server.takes >= timeout:
            return ScrapePage(b"", "timeout", self._clock.now())
        if path in VERSION_PATHS and path != server.version_path:
            return ScrapePage(b"", "status", self._clock.now())
        body = server.version if path == server.version_path else server.page
        if len(body) > max_bytes:
            return ScrapePage(b"", "too_large", self._clock.now())
        return ScrapePage(body, "", self._clock.now())

    async def close(self) -> None:
        """Nothing is open."""
