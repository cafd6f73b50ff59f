"""Two of a kind and one dies: a projector, and the publisher of a cluster with two pickers."""

import asyncio
from dataclasses import replace

import pytest

from services.adapters.kafka.publisher import KafkaBusPublisher
from services.adapters.kafka.reader import KafkaBusReader
from services.adapters.kafka.settings import KafkaSettings
from services.adapters.ports import Topic
from services.core.fleet import ReportId
from services.core.units import Instant, after, in_ms, seconds
from services.wire.health_codec import decode_report, encode_report
from tests.scenarios.processes.evidence import Move, applied_ids, moves_in, reports_on
from tests.scenarios.processes.fleet import ProcessFleet
from tests.scenarios.processes.plan import EU, ROUTED, ClusterPlan
from tests.scenarios.processes.traffic import BOTH_DOORS, CLOCK, judged, polled, settled, traffic
from tests.support.metrics import read_metrics

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(240)]

CLUSTER = "eu-west-1"
HOUR_MS = 3_600_000


def moves(fleet: ProcessFleet, since: Instant) -> list[Move]:
    """Every move that either router made since."""
    return [move for region in ROUTED for move in moves_in(fleet.router(region).stderr(), since)]


def publishing(cluster: ClusterPlan, number: int) -> bool:
    return shows(cluster.pickers[number].metrics, "gir_picker_publishing")


def shows(metrics_port: int, sample: str) -> bool:
    """Whether a process that may not listen yet shows 1."""
    try:
        return read_metrics(metrics_port)[sample] == 1
    except OSError:
        return False


async def test_one_of_two_projectors_dies_and_returns_and_the_view_does_not_notice(
    fleet: ProcessFleet,
) -> None:
    """Both write, which compare-and-set makes harmless; one is enough."""

    async def run() -> None:
        await settled(fleet)
        ports = fleet.plan.projector_metrics
        names = [f"{EU}-projector-{number}" for number in range(2)]
        for name in names:
            page = read_metrics(ports[name])
            assert page['gir_projector_records_total{result="applied"}'] > 0
            assert page['gir_projector_records_total{result="superseded"}'] > 0
        async with traffic(fleet, BOTH_DOORS) as running:
            since = CLOCK.now()
            await running.watch_for_stalls()
            await asyncio.to_thread(fleet.processes[names[0]].kill)
            await running.answers(10, after(since, seconds(4)))
            fleet.start_again(names)
            await polled(lambda: shows(ports[names[0]], "gir_projector_ready"), "its return")
            await running.answers(10, after(CLOCK.now(), seconds(1)))
            await running.finish()
            await running.check_for_stalls(*ROUTED)
        assert moves(fleet, since) == []
        assert [sample for sample in running.samples if sample.failed] == []

    await judged(run)


async def spare_publishes(fleet: ProcessFleet, cluster: ClusterPlan) -> None:
    """See to it that the spare picker holds the lease, as at the start, by restarting the gateway if need be."""
    await settled(fleet)
    if not publishing(cluster, 1):
        gateway = fleet.processes[cluster.gateway.name]
        await asyncio.to_thread(gateway.stop)
        await polled(lambda: publishing(cluster, 1), "the spare to publish")
        gateway.start()
        await settled(fleet)


async def test_a_publisher_dies_and_the_other_picker_speaks_with_a_higher_epoch(fleet: ProcessFleet) -> None:
    """The lease is a file lock, which its holder's death frees; the cluster is never taken for dead."""
    cluster = fleet.plan.cluster(CLUSTER)

    async def run() -> None:
        await spare_publishes(fleet, cluster)
        assert not publishing(cluster, 0)
        # Read now: the bus keeps no more than the last report of a cluster for sure.
        before = [r for r in await reports_on(fleet.kafka.bootstrap) if r.cluster == CLUSTER]
        async with traffic(fleet, BOTH_DOORS) as running:
            await running.answers(10, CLOCK.now())
            await running.watch_for_stalls()
            killed_at = CLOCK.now()
            await asyncio.to_thread(fleet.processes[cluster.pickers[1].name].kill)
            await polled(lambda: publishing(cluster, 0), "the gateway to publish")
            await running.answers(10, after(killed_at, seconds(4)))
            await running.finish()
            await running.check_for_stalls(*ROUTED)
        assert [move for move in moves(fleet, killed_at) if move.after == "UNHEALTHY"] == []
        assert [sample for sample in running.samples if sample.failed] == []

        reports = [r for r in await reports_on(fleet.kafka.bootstrap) if r.cluster == CLUSTER]
        later = [report for report in reports if report.sent_at >= killed_at]
        assert {report.id.epoch for report in later} == {max(report.id for report in later).epoch}
        assert later[0].id.epoch > max(report.id for report in before).epoch
        assert in_ms(later[0].sent_at - killed_at) < 3000

    await judged(run)


async def speak_as_a_rival(fleet: ProcessFleet, epoch: int) -> None:
    """Put the cluster's last report on the bus again under `epoch`, as a publisher with another clock would."""
    settings = KafkaSettings(fleet.kafka.bootstrap)
    reader = KafkaBusReader(settings, [Topic.HEALTH], CLOCK)
    last = decode_report(await reader.last_value(Topic.HEALTH, CLUSTER) or b"")
    await reader.close()
    publisher = KafkaBusPublisher(settings, CLOCK)
    await publisher.start()
    rival = replace(last, id=ReportId(epoch, 1), observed_at_ms=CLOCK.wall_ms())
    await publisher.publish(Topic.HEALTH, CLUSTER, encode_report(rival), seconds(10))
    await publisher.close()


async def test_publishers_whose_clock_is_an_hour_behind_their_predecessors_are_heard(
    fleet: ProcessFleet,
) -> None:
    """A rival whose clock is an hour ahead silences the publisher and falls silent itself.

    The publisher speaks again above the rival's epoch; then it dies, and its successor, as far behind, does too.
    """
    cluster = fleet.plan.cluster(CLUSTER)
    spare = cluster.pickers[1]

    def heard() -> int:
        return applied_ids(fleet.redis.port, EU)[CLUSTER][-1].epoch

    async def run() -> None:
        await spare_publishes(fleet, cluster)
        fenced = read_metrics(spare.metrics)["gir_picker_fenced_total"]
        ahead = max(CLOCK.wall_ms(), heard()) + HOUR_MS
        async with traffic(fleet, BOTH_DOORS) as running:
            await running.answers(10, CLOCK.now())
            await running.watch_for_stalls()
            since = CLOCK.now()
            await speak_as_a_rival(fleet, ahead)
            await polled(lambda: heard() > ahead, "the silenced publisher to speak again")
            assert read_metrics(spare.metrics)["gir_picker_fenced_total"] == fenced + 1
            again = heard()
            await asyncio.to_thread(fleet.processes[spare.name].kill)
            await polled(lambda: heard() > again, "the successor to be heard")
            await running.answers(10, after(CLOCK.now(), seconds(1)))
            await running.finish()
            await running.check_for_stalls(*ROUTED)
        assert heard() > CLOCK.wall_ms() + HOUR_MS / 2
        assert [move for move in moves(fleet, since) if move.after == "UNHEALTHY"] == []
        assert [sample for sample in running.samples if sample.failed] == []

    await judged(run)
