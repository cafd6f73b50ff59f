"""Ports: what the services ask of the outside world, as Protocols over core values.

No implementation lives here. Each port has one contract suite in `tests/contracts`
that the memory room and the real room both pass. With `prefix_ports` and `metric_names` this is
the lobby: all of `adapters` that every room may import.
"""

import enum
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from services.core.fleet import ReportId
from services.core.inference import RequestId
from services.core.locality import ClusterId
from services.core.models.objectives import ObjectiveTable
from services.core.models.rewrites import Rewrite
from services.core.pods.discovered import DiscoveredEndpoint
from services.core.units import Duration, Instant, WallMs, seconds


class AdapterError(Exception):
    """An outside system failed; the message names it and what was asked. Never raised on the request path."""


class RefusedError(AdapterError):
    """The system answered that it will never take this; repeating the call cannot help."""


class UnreachableError(AdapterError):
    """The system cannot be reached now; callers keep what they have and retry with backoff."""


class Clock(Protocol):
    """The one source of time of a process."""

    def now(self) -> Instant:
        """Return monotonic nanoseconds."""

    def wall_ms(self) -> WallMs:
        """Return Unix milliseconds; for reports, tokens and ids only."""

    async def sleep(self, span: Duration) -> None:
        """Wait `span` nanoseconds of this clock."""


class Ids(Protocol):
    """The one source of identity and randomness of a process."""

    def request_id(self) -> RequestId:
        """Return a new UUIDv7 (RFC 9562) in text form."""

    def token(self, size_bytes: int) -> bytes:
        """Return unpredictable bytes (nonces, secrets, incarnations)."""


# --- Kafka: the bus -----------------------------------------------------------------------------


class Topic(enum.Enum):
    """The topics this build uses; names are fixed (`gir.<value>`)."""

    HEALTH = "gir.health"
    PODS = "gir.pods"
    POLICY = "gir.policy"
    DEAD_LETTER = "gir.dead-letter"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """How a topic is created and offered to.

    `compacted` keeps the newest record of each key for ever; otherwise records are kept 7 days.
    An offered value that waited longer than `useful_life` is dropped instead of sent (None: never).
    """

    partitions: int
    compacted: bool
    useful_life: Duration | None = None


TOPICS: Mapping[Topic, TopicSpec] = MappingProxyType(
    {
        # A report older than 1 s no longer breaks silence, and the next one is at most 0.5 s away.
        Topic.HEALTH: TopicSpec(partitions=12, compacted=True, useful_life=seconds(1)),
        Topic.PODS: TopicSpec(partitions=12, compacted=True),
        Topic.POLICY: TopicSpec(partitions=1, compacted=True),
        Topic.DEAD_LETTER: TopicSpec(partitions=1, compacted=False),
    }
)
"""The one table of topics; services create what is missing from it, idempotently."""


@dataclass(frozen=True, slots=True)
class BusRecord:
    """One record as read: `value` None is a tombstone; `live` is False below the end offsets at assignment."""

    topic: Topic
    key: str
    value: bytes | None
    partition: int
    offset: int
    live: bool


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Every partition has been read up to the end offsets captured at assignment (sent once per pass).

    `number` counts passes: 0 for the first, then what `replay` returned, or more when a later request
    or a log created anew has overtaken it.
    """

    number: int = 0


class BusPublisher(Protocol):
    """Producer side. Publishing never blocks the caller's loop for the bus's sake.

    `offer` keeps one send in flight per (topic, key); a newer value replaces a waiting one and the
    replaced one is counted in `coalesced`; one that waited beyond its topic's useful life is dropped
    and counted in `expired`. `publish` waits for acknowledgement (acks=all) and raises
    `UnreachableError` after `timeout`; the record may still arrive later. A record the bus refuses
    for good (too large) raises `RefusedError` from `publish` and is counted in `refused` for `offer`.
    `start` never fails because the bus is away: connecting goes on in the background.
    """

    @property
    def connected(self) -> bool: ...

    @property
    def coalesced(self) -> int: ...

    @property
    def expired(self) -> int: ...

    @property
    def refused(self) -> int: ...

    def offer(self, topic: Topic, key: str, value: bytes | None) -> None: ...

    async def publish(self, topic: Topic, key: str, value: bytes | None, timeout: Duration) -> None: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...


class BusReader(Protocol):
    """Consumer side without a consumer group: all partitions of `topics`, always from the beginning.

    `records()` yields batches for ever: records below the end offsets captured at assignment have
    `live=False`; when all those are read comes one `CaughtUp` (live ones of a partition that is ahead
    may precede it). Connection loss is retried inside with backoff and
    shows in `connected`; nothing is skipped but records without a UTF-8 key, which are counted in
    `skipped`. `replay()` asks for a new pass from the beginning and returns the number of its `CaughtUp`.
    Partitions added later are read from their beginning as live. `start` never fails because the bus
    is away; `records()` has one caller and ends after `close`.
    """

    @property
    def connected(self) -> bool: ...

    @property
    def skipped(self) -> int: ...

    def records(self) -> AsyncGenerator[Sequence[BusRecord | CaughtUp], None]: ...

    def replay(self) -> int: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def last_value(self, topic: Topic, key: str) -> bytes | None:
        """Return the newest retained value of `key` (bounded by one pass over its topic)."""


# --- Redis: the regional view -------------------------------------------------------------------


class ChangeKind(enum.Enum):
    """What a change-stream entry carries."""

    HEALTH = "health"
    PODS = "pods"
    POLICY = "policy"


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the change stream. `version` is the fleet version; `payload` None is a removal."""

    version: int
    kind: ChangeKind
    key: str
    payload: bytes | None
    live: bool


@dataclass(frozen=True, slots=True)
class StoreMeta:
    """Identity of the store: it changed when Redis came back empty, older, or as another server.

    `incarnation` is empty while nobody has written. `ready` holds for the `run_id` it was set under:
    a restarted server is not ready until a projector has replayed into it.
    """

    incarnation: str
    run_id: str
    version: int
    ready: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """A whole list: contents and the version they are true at."""

    meta: StoreMeta
    entries: tuple[Change, ...]


class StreamGapError(AdapterError):
    """The change stream does not continue at last + 1 (trimmed, flushed, or another store): list again."""


class FleetStore(Protocol):
    """The regional materialised view: written by projectors, read by views.

    `put` compares (epoch, sequence) and in one atomic step sets, increments the fleet version and
    appends to the change stream; it returns False for an older or equal pair. `claim` is `meta` for
    writers: it gives an empty store its incarnation. `set_ready` marks the run of the
    server it was filled under, and returns False when the store is no longer the one `claimed`. All
    methods raise `UnreachableError` when the store cannot be reached. One object serves one consumer:
    `tail` continues what this object's last `list` saw, so that a flush or another server behind the
    same address shows as `StreamGapError`.
    """

    async def put(
        self, kind: ChangeKind, key: str, report_id: ReportId, payload: bytes, *, live: bool
    ) -> bool: ...

    async def remove(self, kind: ChangeKind, key: str) -> bool: ...

    async def meta(self) -> StoreMeta: ...

    async def claim(self) -> StoreMeta: ...

    async def set_ready(self, claimed: StoreMeta) -> bool: ...

    async def list(self) -> Listing: ...

    async def tail(self, after_version: int, wait: Duration) -> Sequence[Change]:
        """Return changes after `after_version`, waiting up to `wait`; empty when none came. Raises `StreamGapError`."""

    async def close(self) -> None: ...


# --- Router process group -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One active probe: `ok`, its round trip, and when it finished (CLOCK_MONOTONIC)."""

    cluster: ClusterId
    ok: bool
    finished_at: Instant
    rtt: Duration
    detail: str = ""


class Prober(Protocol):
    """The second witness: asks one cluster's `/readyz` over a warm connection."""

    async def probe(self, cluster: ClusterId, url: str, timeout: Duration) -> ProbeResult: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FeedReport:
    """Report bytes with the instant they arrived on this host."""

    change: Change
    arrived_at: Instant


@dataclass(frozen=True, slots=True)
class FeedListing:
    """A (re)list from the store, with its arrival."""

    listing: Listing
    arrived_at: Instant


FeedEvent = FeedReport | FeedListing | ProbeResult


class Feed(Protocol):
    """Supervisor to workers: reports, listings, probes. One publisher, many subscribers, never blocking."""

    def publish(self, event: FeedEvent) -> None: ...

    def subscribe(self, on_event: Callable[[FeedEvent], None]) -> Callable[[], None]:
        """Call `on_event` for each event in order; returns the unsubscribe function."""


class LocalPicker(Protocol):
    """Asks a cluster's endpoint picker for a pod (Endpoint Mode), under a hand-off token."""

    async def pick(self, address: str, hand_off_token: str, model: str) -> str | None:
        """Return the `host:port` of a pod, None when the picker refuses or cannot be asked in time."""

    async def close(self) -> None: ...


# --- Tier 1 -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScrapePage:
    """One metrics page, or why there is none: `failure` is a closed word (`timeout`, `too_large`, `refused`, `status`, `broken`)."""

    body: bytes
    failure: str
    finished_at: Instant


class MetricsSource(Protocol):
    """Fetches one pod's metrics page within a deadline and a byte bound."""

    async def fetch(self, url: str, timeout: Duration, max_bytes: int) -> ScrapePage: ...

    async def close(self) -> None: ...


class EndpointDiscovery(Protocol):
    """The endpoints of one pool, from wherever they are declared.

    `sets()` yields the complete set, as soon as it is known and then at every change, for ever; it has one
    caller. A source that is away or broken yields nothing, so that its caller keeps the last set, and says
    why in `trouble`, which is empty while all is well.
    """

    @property
    def trouble(self) -> str: ...

    def sets(self) -> AsyncGenerator[tuple[DiscoveredEndpoint, ...], None]: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PoolObjects:
    """What is declared about pools beside their pods: priorities by objective, for each pool, and rewrites."""

    objectives: Mapping[str, ObjectiveTable]
    rewrites: tuple[Rewrite, ...]


class PoolObjectsSource(Protocol):
    """Objectives and rewrites, wherever they are declared; behaves as `EndpointDiscovery` does."""

    @property
    def trouble(self) -> str: ...

    def sets(self) -> AsyncGenerator[PoolObjects, None]: ...

    async def close(self) -> None: ...


class PublisherLease(Protocol):
    """Election of the cluster's one publisher."""

    async def acquire(self) -> None:
        """Wait until this process is the publisher."""

    def held(self) -> bool:
        """Whether the lease is still held; false means stop publishing at once."""

    async def release(self) -> None: ...
