"""A real router on loopback with gateways whose answers a test scripts.

The router is built by its own assembly and fed through a memory store as a projector feeds it. The
gateways are real HTTP servers that check the hop as a picker does; what they answer is the test's.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from services.adapters.auth.key_files import SigningKey, render_hand_off_keys, write_private
from services.adapters.auth.tokens import TokenScope, mint
from services.adapters.http.responder import Responder
from services.adapters.http.server import HttpServer
from services.adapters.memory.store import MemoryFleetStore, MemoryStoreServer
from services.adapters.ports import ChangeKind
from services.adapters.system.clock import SystemClock
from services.core.fleet import HealthReport, HealthState, PoolReport, ReportId
from services.core.inference import Grants, ModelName, TenantId
from services.core.locality import ClusterId, Jurisdiction, Locality, Region
from services.core.policy import (
    ClusterSpec,
    FailoverPolicy,
    HealthPolicy,
    ModelPolicy,
    PolicySnapshot,
    RoutingPolicy,
    TenantPolicy,
    Timeouts,
)
from services.core.residency import ResidencyRule
from services.core.units import seconds
from services.global_router.assembly import Shared, build
from services.global_router.process import Router
from services.global_router.records import DecisionRecord
from services.global_router.settings import GrpcDoor, HttpDoor, RouterSettings
from services.wire.config.listeners import MetricsDoor
from services.wire.hand_off import HandOff, derive_key, verify
from services.wire.health_codec import encode_report
from services.wire.http1.requests import Request
from services.wire.policy_codec import encode_policy
from tests.support.wait import eventually

MODEL = "llama"
EU = Locality(Region("eu-west"), Jurisdiction("eu"))
US = Locality(Region("us-east"), Jurisdiction("us"))
SECRET = b"s" * 32
KEY = SigningKey("eu-1", Ed25519PrivateKey.generate())
ANSWER = b'{"id":"x","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}'
JSON = ((b"content-type", b"application/json"),)
EVENTS = ((b"content-type", b"text/event-stream"),)

Script = Callable[[Request, Responder], None]


def answer(_: Request, responder: Responder) -> None:
    """Answer 200 with a usage object."""
    responder.respond(200, (*JSON, (b"x-gir-endpoint", b"pod-1")), ANSWER)


def status(code: int, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Script:
    """Return a script that answers `code` with an error body."""
    return lambda _, responder: responder.respond(code, (*JSON, *headers), b'{"error":{"message":"no"}}')


def reset(_: Request, responder: Responder) -> None:
    """Cut the connection without an answer."""
    responder.abort()


@dataclass
class Gateway:
    """One cluster's gateway: `script` answers; `seen` holds what arrived, `hand_offs` what the tokens said."""

    cluster: str
    place: Locality
    script: Script = answer
    seen: list[Request] = field(default_factory=list)
    hand_offs: list[HandOff] = field(default_factory=list)
    gone: int = 0
    ready: bool = True
    server: HttpServer = field(init=False)
    port: int = 0

    async def start(self) -> None:
        self.server = HttpServer(self._handle)
        self.port = await self.server.listen("127.0.0.1", self.port)

    def _handle(self, request: Request, responder: Responder) -> None:
        if request.path == b"/readyz":
            responder.respond(200 if self.ready else 503, JSON, b"{}")
            return
        self.seen.append(request)
        token = request.header(b"x-gir-hand-off")
        key = derive_key("eu1", SECRET, ClusterId(self.cluster))
        text = None if token is None else token.decode()
        self.hand_offs.append(
            verify(text, {"eu1": key.secret}, ClusterId(self.cluster), SystemClock().wall_ms())
        )
        responder.on_disconnect = self._gone
        self.script(request, responder)

    def _gone(self) -> None:
        self.gone += 1


@dataclass
class Rig:
    """The running router and everything around it."""

    router: Router
    store: MemoryFleetStore
    server: MemoryStoreServer
    gateways: dict[str, Gateway]
    policy: PolicySnapshot
    client: httpx.AsyncClient
    sequence: int = 0
    silent: set[str] = field(default_factory=set)

    async def report(self, *clusters: str, draining: bool = False) -> None:
        """Publish a live report of each cluster (all when none is named)."""
        self.sequence += 1
        for name in clusters or tuple(set(self.gateways) - self.silent):
            place = self.gateways[name].place
            pools = tuple(
                PoolReport("p", ModelName(model), 3, 3, waiting=0, running=0, capacity_requests=100)
                for model in (MODEL, "alias")
            )
            report = HealthReport(
                ClusterId(name),
                ReportId(1, self.sequence),
                place.region,
                place.jurisdiction,
                SystemClock().wall_ms(),
                pools,
                draining,
            )
            await self.store.put(ChangeKind.HEALTH, name, report.id, encode_report(report), live=True)

    def kill(self, cluster: str) -> None:
        """The cluster stops reporting and answers its probes no more; its sockets stay open."""
        self.silent.add(cluster)
        self.gateways[cluster].ready = False

    def state(self, cluster: str) -> HealthState:
        return self.router.view.state.clusters[ClusterId(cluster)].state

    def records(self) -> list[DecisionRecord]:
        return self.router.log.recent()

    async def post(
        self,
        body: object = None,
        tenant: str = "acme",
        headers: dict[str, str] | None = None,
        path: str = "chat/completions",
    ) -> httpx.Response:
        document = {"model": MODEL, "messages": []} if body is None else body
        content = document if isinstance(document, bytes) else None
        return await self.client.post(
            f"/v1/{path}",
            content=content,
            json=None if isinstance(document, bytes) else document,
            headers={"authorization": bearer(tenant), **(headers or {})},
        )


def bearer(tenant: str = "acme", lifetime_s: int = 600) -> str:
    token = mint(
        TokenScope(TenantId(tenant)), KEY.kid, KEY.private, SystemClock().wall_ms(), lifetime_s, "token-id"
    )
    return f"Bearer {token}"


TENANTS = (
    TenantPolicy(TenantId("acme"), Grants()),
    TenantPolicy(TenantId("eu-only"), Grants(residency=ResidencyRule(frozenset({Jurisdiction("eu")})))),
    TenantPolicy(TenantId("us-only"), Grants(residency=ResidencyRule(frozenset({Jurisdiction("us")})))),
    TenantPolicy(TenantId("narrow"), Grants(models=frozenset({ModelName("other")}))),
)


def make_policy(gateways: dict[str, Gateway], timeouts: Timeouts, routing: RoutingPolicy) -> PolicySnapshot:
    return PolicySnapshot(
        1,
        SystemClock().wall_ms(),
        tuple(
            ClusterSpec(
                ClusterId(name),
                gateway.place,
                f"http://127.0.0.1:{gateway.port}",
                "",
                f"http://127.0.0.1:{gateway.port}/readyz",
            )
            for name, gateway in gateways.items()
        ),
        (ModelPolicy(ModelName(MODEL), (ModelName("alias"),)), ModelPolicy(ModelName("other"))),
        TENANTS,
        (KEY.public(),),
        HealthPolicy(),
        FailoverPolicy(timeouts=timeouts),
        routing,
    )


@asynccontextmanager
async def running(
    folder: Path,
    places: dict[str, Locality] | None = None,
    timeouts: Timeouts | None = None,
    routing: RoutingPolicy | None = None,
) -> AsyncIterator[Rig]:
    """Start a router in eu-west with one gateway per place, all HEALTHY."""
    gateways = {name: Gateway(name, place) for name, place in (places or {"eu-a": EU, "us-a": US}).items()}
    for gateway in gateways.values():
        await gateway.start()
    policy = make_policy(gateways, timeouts or Timeouts(), routing or RoutingPolicy())
    clock = SystemClock()
    server = MemoryStoreServer(clock)
    store = MemoryFleetStore(server)
    await store.set_ready(await store.claim())
    await store.put(ChangeKind.POLICY, "snapshot", ReportId(1, 0), encode_policy(policy), live=True)
    secret = folder / "secret"
    write_private(secret, render_hand_off_keys({"eu1": SECRET}).encode())
    settings = RouterSettings(
        fleet="test",
        region="eu-west",
        jurisdiction="eu",
        http=HttpDoor(port=0),
        grpc=GrpcDoor(port=0),
        metrics=MetricsDoor(port=0),
        state_dir=folder / "state",
        hand_off_secret=secret,
        decision_file=folder / "decisions.jsonl",
        drain_ms=2000,
    )
    router = build(settings, Shared(clock, None, MemoryFleetStore(server)))
    await router.start()
    client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{router.http_port}", timeout=20, trust_env=False)
    rig = Rig(router, store, server, gateways, policy, client)
    reports = asyncio.ensure_future(_keep_reporting(rig))  # noqa: TID251 -- cancelled below
    try:
        await eventually(lambda: router.view.policy is not None, what="a policy")
        await eventually(
            lambda: all(rig.state(name) is HealthState.HEALTHY for name in gateways), what="healthy clusters"
        )
        await eventually(lambda: len(router.view.current.snapshot.candidates) == len(gateways))
        await eventually(
            lambda: all(c.state is HealthState.HEALTHY for c in router.view.current.snapshot.candidates)
        )
        yield rig
    finally:
        reports.cancel()
        await client.aclose()
        await router.abort()
        for gateway in gateways.values():
            await gateway.server.close()


async def _keep_reporting(rig: Rig) -> None:
    while True:
        await rig.report()
        await SystemClock().sleep(seconds(0.3))
