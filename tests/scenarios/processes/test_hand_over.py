"""Two of a kind and one dies: a projector, and the publisher of a cluster with two pickers."""

import asyncio

import pytest

from services.core.units import Instant, after, in_ms, seconds
from tests.scenarios.processes.evidence import Move, moves_in, reports_on
from tests.scenarios.processes.fleet import ProcessFleet
from tests.scenarios.processes.plan import EU, ROUTED, ClusterPlan
from tests.scenarios.processes.traffic import BOTH_DOORS, CLOCK, judged, polled, settled, traffic
from tests.support.metrics import read_metrics

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(240)]

CLUSTER = "eu-west-1"


def moves(fleet: ProcessFleet, since: Instant) -> list[Move]:
    """Every move that either router made since."""
    return [move for region in ROUTED for move in moves_in(fleet.router(region).stderr(), since)]


def publishing(cluster: ClusterPlan, number: int) -> bool:
    return read_metrics(cluster.pickers[number].metrics)["gir_picker_publishing"] == 1


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
            await polled(lambda: fleet.processes[names[0]].running and ready(ports[names[0]]), "its return")
            await running.answers(10, after(CLOCK.now(), seconds(1)))
            await running.finish()
            await running.check_for_stalls(*ROUTED)
        assert moves(fleet, since) == []
        assert [sample for sample in running.samples if sample.failed] == []

    await judged(run)


def ready(metrics_port: int) -> bool:
    try:
        return read_metrics(metrics_port)["gir_projector_ready"] == 1
    except OSError:
        return False


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
        async with traffic(fleet, BOTH_DOORS) as running:
            await running.answers(10, CLOCK.now())
            await running.watch_for_stalls()
            killed_at = CLOCK.now()
            await asyncio.to_thread(fleet.processes[cluster.pickers[1].name].kill)
            await polled(lambda: publishing(cluster, 0), "the gateway to publish")
            await running.answers(10, after(killed_at, seconds(4)))
            await running.finish()
            await running.check_for_stalls(*ROUTED)
        assert [move for move in moves(fleet, killed_at) if move.after not in ("STALE", "HEALTHY")] == []
        assert [sample for sample in running.samples if sample.failed] == []

        reports = [r for r in await reports_on(fleet.kafka.bootstrap) if r.cluster == CLUSTER]
        before = [report for report in reports if report.sent_at < killed_at]
        later = [report for report in reports if report.sent_at >= killed_at]
        assert {report.id.epoch for report in later} == {max(report.id for report in later).epoch}
        assert later[0].id.epoch > max(report.id for report in before).epoch
        assert in_ms(later[0].sent_at - killed_at) < 3000

    await judged(run)
