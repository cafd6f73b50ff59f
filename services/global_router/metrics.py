"""The router's metrics: plain counters of its parts, named, at the moment a page is asked for.

Nothing is counted here. Labels come from closed sets or from policy, never from requests.
"""

from collections.abc import Iterable

from services.adapters.metric_names import router as names
from services.adapters.ports import Clock
from services.adapters.telemetry.prometheus import Value
from services.core.units import NS_PER_S
from services.global_router.doors.http import HttpDoor
from services.global_router.fleet_board import FleetBoard
from services.global_router.lifecycle import LifeCycle
from services.global_router.project import Projector
from services.global_router.supervise import Supervisor


def router_values(
    life: LifeCycle, door: HttpDoor, supervisor: Supervisor, board: FleetBoard, clock: Clock
) -> Iterable[Value]:
    """Return all values of one router process."""
    yield from _requests(life, door)
    yield from _fleet(life, supervisor, board, clock)


def _requests(life: LifeCycle, door: HttpDoor) -> Iterable[Value]:
    tallies = life.tallies
    yield Value(names.ROUTER_REQUESTS, tallies.requests)
    yield Value(names.ROUTER_LIVE, len(life.live))
    yield Value(names.ROUTER_REPLAY_BYTES, life.replay_bytes)
    yield Value(names.ROUTER_ATTEMPTS, tallies.attempts)
    yield Value(names.ROUTER_REDISPATCHES, tallies.redispatches)
    yield Value(names.ROUTER_RETRIES_DENIED, life.retries_denied)
    yield Value(names.ROUTER_RECORDS_DROPPED, life.log.dropped)
    for ending, count in tallies.endings.items():
        yield Value(names.ROUTER_ENDINGS, count, (ending.value,))
    for reason, count in tallies.rejected.items():
        yield Value(names.ROUTER_REJECTIONS, count, (reason.value,))
    for refusal, count in door.refused.items():
        yield Value(names.ROUTER_REFUSALS, count, (refusal.value,))
    for outcome, count in tallies.outcomes.items():
        yield Value(names.ROUTER_OUTCOMES, count, (outcome.value,))


def _fleet(life: LifeCycle, supervisor: Supervisor, board: FleetBoard, clock: Clock) -> Iterable[Value]:
    view = life.view
    yield Value(names.ROUTER_READY, view.ready)
    yield Value(names.ROUTER_ISOLATED, view.state.isolated)
    yield Value(names.FLEET_BUS_OUTAGE, view.state.bus_suspect)
    yield Value(names.ROUTER_STORE_CONNECTED, supervisor.tallies.connected)
    yield Value(names.ROUTER_LISTINGS, supervisor.tallies.listings)
    yield Value(names.ROUTER_CHANGES, supervisor.tallies.changes)
    yield Value(names.ROUTER_SNAPSHOTS, view.tallies.rebuilds)
    yield Value(names.ROUTER_LATE_TICKS, view.tallies.late_ticks)
    yield Value(names.ROUTER_UNDECODABLE, view.tallies.undecodable)
    yield Value(names.ROUTER_POLICY_REVISION, view.current.revision)
    for (state, reason), count in view.tallies.moves.items():
        yield Value(names.ROUTER_CLUSTER_MOVES, count, (state.value, reason.value))
    in_flight = life.in_flight()
    for status in board.statuses(clock.now()):
        cluster = status.candidate.id
        yield Value(names.CLUSTER_STATE, 1, (cluster, status.candidate.state.value))
        yield Value(names.CLUSTER_IN_FLIGHT, in_flight[cluster], (cluster,))
        if status.silence is not None:
            yield Value(names.CLUSTER_SILENCE, status.silence / NS_PER_S, (cluster,))
    probes = supervisor.tallies
    for result, count in (
        ("ok", probes.probes - probes.probes_failed - probes.probes_voided),
        ("failed", probes.probes_failed),
        ("voided", probes.probes_voided),
    ):
        yield Value(names.ROUTER_PROBES, count, (result,))


def projector_values(projector: Projector) -> Iterable[Value]:
    """Return all values of one projector."""
    counters = projector.counters
    yield Value(names.PROJECTOR_READY, projector.ready)
    yield Value(names.PROJECTOR_BUS_CONNECTED, projector.bus_connected)
    yield Value(names.PROJECTOR_REPLAYS, counters.replays)
    yield Value(names.PROJECTOR_STORE_FAILURES, counters.store_failures)
    for result, count in (
        ("applied", counters.applied),
        ("superseded", counters.superseded),
        ("removed", counters.removed),
        ("undecodable", counters.undecodable),
        ("ignored", counters.ignored),
    ):
        yield Value(names.PROJECTOR_RECORDS, count, (result,))
