"""Speaking for the cluster: election, fencing, and putting reports on the bus when they are due.

Every picker picks; one publishes. Which epoch may speak is `core/pods/fencing`, what a report says and when
it is due is `core/pods/report`; this module waits, reads the bus and offers records. A bus that is away
never stops the picker: it serves, and this loop keeps trying.
"""

import logging
from dataclasses import dataclass, field

from services.adapters.ports import (
    BusPublisher,
    BusReader,
    BusRecord,
    Clock,
    PublisherLease,
    Topic,
    UnreachableError,
)
from services.core.fleet import HealthReport, PodRecord, PodsReport, PoolReport, ReportId
from services.core.locality import ClusterId, Locality
from services.core.pods import fencing
from services.core.pods.fencing import Standing
from services.core.pods.report import PoolSpec, pod_records, pods_due, pool_reports, report_due
from services.core.pods.table import PodTable
from services.core.units import Instant, ms, seconds
from services.endpoint_picker.counters import Counters
from services.wire.errors import UndecodableError
from services.wire.health_codec import decode_report, encode_report
from services.wire.pods_codec import encode_pods, pods_key

_LOG = logging.getLogger(__name__)

LOOK_EVERY = ms(50)
"""Half of the closest distance of two reports: a state change waits at most this long beyond it."""
RETRY_BUS_EVERY = seconds(1)
_NEVER = Instant(0)


@dataclass(slots=True)
class _Sent:
    """What was said last, so that news can be told from repetition."""

    pools: tuple[PoolReport, ...] | None = None
    pools_at: Instant = _NEVER
    pods: dict[str, tuple[PodRecord, ...]] = field(default_factory=dict)
    pods_at: dict[str, Instant] = field(default_factory=dict)
    pods_id: ReportId = field(default_factory=lambda: ReportId(0, 0))


@dataclass(slots=True)
class Publisher:
    """Runs the election and the publishing loop of one picker process.

    `draining` and `frozen` are set from outside: the first
    is said in every report, the second silences the publisher (a black-holed cluster).
    """

    cluster: ClusterId
    place: Locality
    pools: tuple[PoolSpec, ...]
    table: PodTable
    lease: PublisherLease
    bus: BusPublisher
    reader: BusReader
    clock: Clock
    counters: Counters
    draining: bool = False
    frozen: bool = False
    standing: Standing | None = None

    async def run(self) -> None:
        """Publish whenever this process is elected, for ever."""
        while True:
            self.standing = None
            await self.lease.acquire()
            last = await self._last_epoch()
            if not self.lease.held():
                continue
            self.standing = fencing.take_over(self.clock.wall_ms(), last)
            _LOG.info("cluster %s: publishing with epoch %d", self.cluster, self.standing.epoch)
            try:
                await self._publish_while_held()
            finally:
                self.counters.publishing = False
            _LOG.warning("cluster %s: the publisher lease is lost", self.cluster)

    async def listen(self) -> None:
        """Follow the own cluster's key for rivals, for ever."""
        async for batch in self.reader.records():
            for record in batch:
                if isinstance(record, BusRecord) and record.key == self.cluster and record.value is not None:
                    self._heard(record.value)

    def _heard(self, value: bytes) -> None:
        if self.standing is None:
            return
        try:
            report = decode_report(value)
        except UndecodableError:
            return  # Projectors account for it; who cannot be read cannot fence.
        before = self.standing
        self.standing = fencing.seen(before, report.id, self.clock.now())
        if before.may_publish and not self.standing.may_publish:
            self.counters.fenced += 1
            _LOG.warning("cluster %s: silenced by epoch %d", self.cluster, report.id.epoch)

    async def _last_epoch(self) -> int | None:
        while True:
            try:
                value = await self.reader.last_value(Topic.HEALTH, self.cluster)
                return None if value is None else decode_report(value).id.epoch
            except UndecodableError:
                return None
            except UnreachableError:
                await self.clock.sleep(RETRY_BUS_EVERY)

    async def _publish_while_held(self) -> None:
        sent = _Sent()
        while self.lease.held() and self.standing is not None:
            now = self.clock.now()
            epoch = self.standing.epoch
            self.standing = fencing.tick(self.standing, now)
            if self.standing.epoch != epoch:
                sent = _Sent()
                _LOG.warning("cluster %s: taking over with epoch %d", self.cluster, self.standing.epoch)
            self.counters.publishing = self.standing.may_publish and not self.frozen
            if self.counters.publishing:
                self._say(self.standing, sent, now)
            await self.clock.sleep(LOOK_EVERY)

    def _say(self, standing: Standing, sent: _Sent, now: Instant) -> None:
        pools = pool_reports(self.table, self.pools, draining=self.draining, now=now)
        if report_due(sent.pools, sent.pools_at, pools, now):
            sent.pools, sent.pools_at = pools, now
            self.standing, report_id = fencing.next_id(standing)
            report = HealthReport(
                cluster=self.cluster,
                id=report_id,
                region=self.place.region,
                jurisdiction=self.place.jurisdiction,
                observed_at_ms=self.clock.wall_ms(),
                pools=pools,
                draining=self.draining,
            )
            self.counters.reports += 1
            self.bus.offer(Topic.HEALTH, self.cluster, encode_report(report))
        for pool in self.pools:
            self._say_pods(pool.name, standing.epoch, sent, now)

    def _say_pods(self, pool: str, epoch: int, sent: _Sent, now: Instant) -> None:
        records = pod_records(self.table.in_pool(pool), now, self.clock.wall_ms())
        if not pods_due(sent.pods.get(pool), sent.pods_at.get(pool, _NEVER), records, now):
            return
        sent.pods[pool], sent.pods_at[pool] = records, now
        sent.pods_id = ReportId(epoch, sent.pods_id.sequence + 1)
        report = PodsReport(self.cluster, pool, sent.pods_id, records)
        self.bus.offer(Topic.PODS, pods_key(self.cluster, pool), encode_pods(report))
