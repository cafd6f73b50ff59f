"""Builds one endpoint picker from its settings: the only place that names its adapters.

Ready-made ports may be passed in `Shared`, which only worlds fill. Nothing is started here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from services.adapters.auth.key_files import KeyFileError, parse_hand_off_keys, read_private
from services.adapters.grpc.binding import Listen
from services.adapters.grpc.server import GrpcServer
from services.adapters.http.page import PageServer
from services.adapters.http.relay import ExchangeTimeouts
from services.adapters.http.server import HttpServer, ServerOptions
from services.adapters.http.upstream import UpstreamPool
from services.adapters.kafka.publisher import KafkaBusPublisher
from services.adapters.kafka.reader import KafkaBusReader
from services.adapters.kafka.settings import KafkaSettings
from services.adapters.memory.lease import StaticLease
from services.adapters.model_server.engines import CHOICES, engine_named
from services.adapters.model_server.source import HttpMetricsSource
from services.adapters.ports import BusPublisher, BusReader, Clock, Ids, PublisherLease, Topic
from services.adapters.system.clock import SystemClock
from services.adapters.system.file_lease import FileLease
from services.adapters.system.ids import SystemIds
from services.adapters.system.tasks import TaskScope
from services.adapters.telemetry.cardinality import CappedLabel
from services.adapters.telemetry.prometheus import CONTENT_TYPE, MetricsPage
from services.adapters.telemetry.tracing import Tracing, otlp
from services.core.admission.detectors import UtilizationDetector
from services.core.pods.table import Pod, PodTable
from services.core.units import ms
from services.endpoint_picker.assembly_discovery import Sources, build_lease, build_sources
from services.endpoint_picker.assembly_traffic import build_prefix, read_scheduling, spread_over
from services.endpoint_picker.counters import Counters, picker_values
from services.endpoint_picker.declared import Declared
from services.endpoint_picker.discovery_values import discovery_values
from services.endpoint_picker.doors.ext_proc import ProcessorService
from services.endpoint_picker.doors.grpc import PickerService
from services.endpoint_picker.doors.http import HttpDoor
from services.endpoint_picker.entry import Entry
from services.endpoint_picker.field_metrics import FieldMetrics, pool_values, process_values
from services.endpoint_picker.flow_control import FlowControl
from services.endpoint_picker.flow_metrics import FlowMetrics
from services.endpoint_picker.gateway_file import served_by
from services.endpoint_picker.intake import Reception
from services.endpoint_picker.lifecycle import Lifecycle
from services.endpoint_picker.models import LiveModels
from services.endpoint_picker.observe import Observer, ScrapeRules
from services.endpoint_picker.pick import LocalScheduler
from services.endpoint_picker.process import Bus, Doors, EndpointPicker, Watchdog
from services.endpoint_picker.publish import Publisher
from services.endpoint_picker.saturation import PoolGauge
from services.endpoint_picker.sessions import SessionTable
from services.endpoint_picker.settings import Accept, ExtProc, LeaseKind, PickerSettings
from services.endpoint_picker.telling import Telling
from services.wire.config.scheduling import PickerConfig
from services.wire.config.settings_source import SettingsError
from services.wire.ext_proc.events import StreamRules
from services.wire.http1.limits import RequestLimits


@dataclass(frozen=True, slots=True)
class Shared:
    """Ports that a world makes once for several services. None: the picker makes its own."""

    clock: Clock | None = None
    ids: Ids | None = None
    sender: BusPublisher | None = None
    reader: BusReader | None = None
    lease: PublisherLease | None = None
    hand_off_keys: Mapping[str, bytes] | None = None


def build(settings: PickerSettings, shared: Shared | None = None) -> EndpointPicker:
    """Return a picker, not started. Raises `SettingsError` for files that are needed and are not there."""
    shared = shared or Shared()
    served = served_by(settings)
    settings = served.settings
    clock = shared.clock or SystemClock()
    ids = shared.ids or SystemIds()
    counters = Counters()
    table = _table(settings, clock)
    names = [pool.name for pool in settings.pools]
    spread = spread_over(names, read_scheduling(settings.scheduling), served.profiles)
    config = spread.config
    scheduler = LocalScheduler(
        table, settings.pool_specs, settings.place, counters, config.profile, spread.profiles
    )
    source = HttpMetricsSource(clock)
    observer = _observer(settings, table, source, clock, ids, counters)
    entry = Entry(
        settings.cluster_id, settings.place, settings.http.accept, _hand_off_keys(settings, shared), counters
    )
    pool = UpstreamPool()
    timeouts = ExchangeTimeouts(settings.http.first_byte_ms, settings.http.idle_ms, settings.http.total_ms)
    reception = Reception(ids, config.prefix is not None, spread.headers)
    declared = Declared(
        settings.objectives, LiveModels(settings.pool_models, settings.default_pool), served.rewrites
    )
    waits = FlowMetrics()
    flow = _flow_control(config, table, clock, waits)
    metrics = FieldMetrics(CappedLabel(declared.models.names()), CappedLabel(declared.models.names()))
    telling = Telling(counters, metrics, _tracing(settings))
    watchdog = Watchdog(settings.cluster)
    tasks = TaskScope(watchdog.task_failed)
    prefix = build_prefix(settings, config, table, clock, ids, tasks)
    sessions = SessionTable() if spread.reads_sessions else None
    prefixes = None if prefix is None else prefix.requests
    life = Lifecycle(scheduler, declared, flow, telling, clock, prefixes, sessions)
    http = HttpDoor(
        entry,
        reception,
        life,
        observer,
        pool,
        clock,
        timeouts,
        settings.http.body_max_bytes,
        served.total_ms,
    )
    grpc = PickerService(entry, life, observer, clock, ids)
    ext_proc = ProcessorService(entry, reception, life, clock, _stream_rules(settings.ext_proc))
    sources = _sources(settings, clock, ids, counters)
    bus = _bus(settings, shared, table, clock, ids, counters, sources)
    page = MetricsPage(
        [
            picker_values(counters, table, settings.pool_specs, bus.sender if bus is not None else None),
            telling.metrics.values,
            lambda: waits.values(flow.figures(), flow.saturations(clock.now()), flow.revocation_seconds),
            process_values(counters, ext_proc),
            pool_values(table, names),
            discovery_values(sources.endpoints, table, settings.pool_specs, clock),
            *([] if prefix is None else [prefix.values]),
        ]
    )
    doors = _doors(settings, http, grpc, ext_proc, page)
    return EndpointPicker(
        settings, doors, life, observer, sources, pool, source, clock, bus, prefix, tasks, watchdog
    )


def _flow_control(config: PickerConfig, table: PodTable, clock: Clock, waits: FlowMetrics) -> FlowControl:
    """Return the queues, or what lets everything through where the configuration has none."""
    queue = config.flow_control
    detector = UtilizationDetector() if queue is None else queue.saturation_detector
    return FlowControl(queue, lambda pool: PoolGauge(table, pool, detector), clock, left=waits.left)


def _sources(settings: PickerSettings, clock: Clock, ids: Ids, counters: Counters) -> Sources:
    """Return where endpoints come from; only the replica that publishes writes conditions."""
    return build_sources(
        ((pool.name, pool.discovery) for pool in settings.pools),
        settings.kubernetes,
        clock,
        ids,
        lambda: counters.publishing,
        elects=settings.lease is LeaseKind.KUBERNETES,
    )


def _observer(
    settings: PickerSettings,
    table: PodTable,
    source: HttpMetricsSource,
    clock: Clock,
    ids: Ids,
    counters: Counters,
) -> Observer:
    engines, scrape = _engines(settings), settings.scrape
    return Observer(
        table,
        source,
        lambda pod: engine_named(engines[pod.pool], pod.labels),
        clock,
        ids,
        counters,
        ScrapeRules(ms(scrape.interval_ms), ms(scrape.timeout_ms), scrape.max_bytes, scrape.metrics_path),
        metrics_ports={
            pool.name: pool.metrics_port for pool in settings.pools if pool.metrics_port is not None
        },
    )


def _doors(
    settings: PickerSettings,
    http: HttpDoor,
    grpc: PickerService,
    ext_proc: ProcessorService,
    page: MetricsPage,
) -> Doors:
    options = ServerOptions(limits=RequestLimits(body_bytes=settings.http.body_max_bytes))
    return Doors(
        http,
        HttpServer(http.handle, options, refuse=http.refuse_malformed, screen=http.screen),
        grpc,
        ext_proc,
        GrpcServer(
            Listen(settings.grpc.host, settings.grpc.port, settings.insecure_bind),
            [grpc.door(), ext_proc.door()],
        ),
        _health(settings, ext_proc),
        PageServer(b"/metrics", CONTENT_TYPE, page.render),
    )


def _stream_rules(wanted: ExtProc) -> StreamRules:
    return StreamRules(
        wanted.body_max_bytes,
        ms(wanted.body_wait_ms),
        wanted.endpoints_max,
        wanted.scores,
        wanted.conformance,
    )


def _health(settings: PickerSettings, ext_proc: ProcessorService) -> GrpcServer | None:
    """Return a server of gRPC health alone, if it is to have a port of its own."""
    if settings.health is None:
        return None
    listen = Listen(settings.health.host, settings.health.port, settings.insecure_bind)
    return GrpcServer(listen, [], ext_proc.door().health_names)


def _tracing(settings: PickerSettings) -> Tracing | None:
    wanted = settings.tracing
    return None if wanted is None else otlp(wanted.url, "gir-endpoint-picker", wanted.ratio)


def _table(settings: PickerSettings, clock: Clock) -> PodTable:
    return PodTable(
        (
            Pod(
                endpoint.id,
                endpoint.address,
                pool.name,
                endpoint.draining,
                endpoint.capacity_requests,
                endpoint.capacity_tokens_per_s,
            )
            for pool in settings.pools
            for endpoint in pool.endpoints
        ),
        clock.now(),
    )


def _engines(settings: PickerSettings) -> dict[str, str]:
    """Return the engine configured for each pool."""
    unknown = [pool for pool in settings.pools if pool.engine not in CHOICES]
    if unknown:
        raise SettingsError(
            tuple(
                f"pools.{pool.name}.engine: {pool.engine!r}: must be one of {', '.join(CHOICES)}"
                for pool in unknown
            )
        )
    return {pool.name: pool.engine for pool in settings.pools}


def _hand_off_keys(settings: PickerSettings, shared: Shared) -> Mapping[str, bytes]:
    if shared.hand_off_keys is not None:
        return shared.hand_off_keys
    file = settings.hand_off_keys
    if file is None:
        if settings.http.accept is Accept.ROUTER:
            raise SettingsError(("hand_off_keys: needed by `http.accept: router`",))
        return {}
    try:
        return parse_hand_off_keys(read_private(file).decode(), str(file))
    except (KeyFileError, UnicodeDecodeError) as error:
        raise SettingsError((f"hand_off_keys: {error}",)) from None


def _bus(
    settings: PickerSettings,
    shared: Shared,
    table: PodTable,
    clock: Clock,
    ids: Ids,
    counters: Counters,
    sources: Sources,
) -> Bus | None:
    sender, reader, owned = shared.sender, shared.reader, False
    if (sender is None or reader is None) and settings.kafka.bootstrap:
        kafka = KafkaSettings(
            settings.kafka.bootstrap,
            client_id=f"gir-picker-{settings.cluster}",
            replication_factor=settings.kafka.replication,
        )
        sender, owned = KafkaBusPublisher(kafka, clock), True
        reader = KafkaBusReader(kafka, (Topic.HEALTH,), clock)
    if sender is None or reader is None:
        return None
    lease = shared.lease or _lease(settings, clock, ids, sources)
    publisher = Publisher(
        settings.cluster_id,
        settings.place,
        settings.pool_specs,
        table,
        lease,
        sender,
        reader,
        clock,
        counters,
    )
    return Bus(publisher, sender, reader, lease, owned)


def _lease(settings: PickerSettings, clock: Clock, ids: Ids, sources: Sources) -> PublisherLease:
    if settings.lease is LeaseKind.KUBERNETES and sources.api is not None:
        return build_lease(sources.api, settings.kubernetes, clock, ids)
    file = settings.lease_file
    if settings.lease is LeaseKind.FILE and file is not None:
        if not file.parent.is_dir():
            raise SettingsError((f"lease_file: {file.parent} is not a folder",))
        return FileLease(file, clock)
    return StaticLease()
