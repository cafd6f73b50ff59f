"""Builds one router, or one projector, from its settings: the only place that names their adapters.

Ready-made ports may be passed in `Shared`, which only worlds fill. Nothing is started here.
"""

from dataclasses import dataclass

from services.adapters.auth.authenticator import Authenticator
from services.adapters.auth.key_files import KeyFileError, parse_region_secrets, read_private
from services.adapters.grpc.binding import Listen
from services.adapters.grpc.local_picker import GrpcLocalPicker
from services.adapters.grpc.server import GrpcServer
from services.adapters.http.page import PageServer
from services.adapters.http.prober import HttpProber
from services.adapters.http.server import HttpServer, ServerOptions
from services.adapters.http.upstream import UpstreamPool
from services.adapters.kafka.publisher import KafkaBusPublisher
from services.adapters.kafka.reader import KafkaBusReader
from services.adapters.kafka.settings import KafkaSettings
from services.adapters.memory.feed import MemoryFeed
from services.adapters.ports import BusPublisher, BusReader, Clock, FleetStore, Ids
from services.adapters.redis.store import RedisFleetStore
from services.adapters.system.clock import SystemClock
from services.adapters.system.decision_log import RingDecisionLog
from services.adapters.system.ids import SystemIds
from services.adapters.system.tasks import TaskScope
from services.adapters.telemetry.prometheus import CONTENT_TYPE, MetricsPage
from services.global_router.doors.grpc import GrpcDoor
from services.global_router.doors.http import HttpDoor
from services.global_router.fleet_board import FleetBoard
from services.global_router.lifecycle import LifeCycle
from services.global_router.metrics import projector_values, router_values
from services.global_router.policy_file import PolicyFile
from services.global_router.process import Router
from services.global_router.project import PROJECTED_TOPICS, Projector
from services.global_router.projection import ProjectorService
from services.global_router.records import DecisionRecord, render
from services.global_router.settings import ProjectorSettings, RouterSettings
from services.global_router.supervise import Supervisor
from services.global_router.view import View
from services.wire.config.settings_source import SettingsError
from services.wire.http1.limits import RequestLimits


@dataclass(frozen=True, slots=True)
class Shared:
    """Ports that a world makes once for several services. None: the service makes its own.

    `store` is given to this one service and closed by it; `reader` and `dead_letters` likewise.
    """

    clock: Clock | None = None
    ids: Ids | None = None
    store: FleetStore | None = None
    reader: BusReader | None = None
    dead_letters: BusPublisher | None = None


def build(settings: RouterSettings, shared: Shared | None = None) -> Router:
    """Return a router, not started. Raises `SettingsError` for a secret that cannot be read."""
    shared = shared or Shared()
    clock = shared.clock or SystemClock()
    ids = shared.ids or SystemIds()

    def part_failed(name: str, error: BaseException) -> None:
        router.part_failed(name, error)

    scope = TaskScope(part_failed)
    feed = MemoryFeed()
    here = settings.here
    view = View(clock, feed, here, scope, PolicyFile(settings.state_dir))
    board = FleetBoard(view, feed)
    prober = HttpProber(clock)
    store = shared.store
    if store is None and settings.redis.url:
        store = RedisFleetStore(settings.redis.url, settings.fleet, settings.region, ids)
    supervisor = Supervisor(clock, feed, view, prober, scope, store)
    pool = UpstreamPool()
    log = RingDecisionLog[DecisionRecord](render, settings.decision_file)
    life = LifeCycle(clock, view, pool, log, _region_key(settings))
    authenticator = Authenticator()
    door = HttpDoor(life, authenticator, ids.request_id, here)
    picker = GrpcLocalPicker()
    grpc_door = GrpcDoor(life, authenticator, ids.request_id, here, picker, board)
    page = MetricsPage([lambda: router_values(life, door, supervisor, board, clock)])
    options = ServerOptions(limits=RequestLimits(body_bytes=settings.http.body_max_bytes))
    router = Router(
        settings=settings,
        clock=clock,
        scope=scope,
        view=view,
        board=board,
        supervisor=supervisor,
        authenticator=authenticator,
        life=life,
        log=log,
        door=door,
        http_server=HttpServer(door.handle, options, refuse=door.refuse, screen=door.screen),
        grpc_server=_grpc_server(settings, grpc_door),
        metrics_server=PageServer(b"/metrics", CONTENT_TYPE, page.render),
        pool=pool,
        prober=prober,
        picker=picker,
        store=store,
    )
    return router


def build_projector(settings: ProjectorSettings, shared: Shared | None = None) -> ProjectorService:
    """Return a projector, not started."""
    shared = shared or Shared()
    clock = shared.clock or SystemClock()
    kafka = KafkaSettings(
        settings.kafka.bootstrap,
        client_id=f"gir-projector-{settings.region}",
        replication_factor=settings.kafka.replication,
    )
    reader = shared.reader or KafkaBusReader(kafka, PROJECTED_TOPICS, clock)
    dead_letters = shared.dead_letters or KafkaBusPublisher(kafka, clock)
    store = shared.store or RedisFleetStore(
        settings.redis.url, settings.fleet, settings.region, shared.ids or SystemIds()
    )
    projector = Projector(reader, store, dead_letters, clock)
    page = MetricsPage([lambda: projector_values(projector)])
    return ProjectorService(
        settings,
        clock,
        projector,
        reader,
        dead_letters,
        store,
        PageServer(b"/metrics", CONTENT_TYPE, page.render),
    )


def _grpc_server(settings: RouterSettings, door: GrpcDoor) -> GrpcServer:
    listen = Listen(settings.grpc.host, settings.grpc.port, settings.insecure_bind)
    return GrpcServer(listen, [door.door()])


def _region_key(settings: RouterSettings) -> tuple[str, bytes]:
    """Return the newest (kid, secret) of the region's file: its last line signs."""
    file = settings.hand_off_secret
    try:
        keys = parse_region_secrets(read_private(file).decode(), str(file))
    except (KeyFileError, UnicodeDecodeError) as error:
        raise SettingsError((f"hand_off_secret: {error}",)) from None
    if not keys:
        raise SettingsError(
            (f"hand_off_secret: {file}: holds no key; make one with `gir token hand-off init`",)
        )
    return list(keys.items())[-1]
