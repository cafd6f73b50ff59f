"""Plain counters of one picker and their reading as metrics.

An increment is an integer addition where the thing happens; names and labels meet the values only when a
page is asked for. Nothing is decided by a counter.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import fmean

from services.adapters.metric_names import picker as names
from services.adapters.ports import BusPublisher
from services.adapters.telemetry.prometheus import Value
from services.core.fleet import PodState
from services.core.pods.report import PoolSpec, pool_reports
from services.core.pods.table import Pod, PodTable, Serving


@dataclass(slots=True)
class Counters:
    """What happened since the process started. Keys are values of closed enumerations."""

    scrapes: Counter[str] = field(default_factory=Counter)
    incomplete_pages: int = 0
    pod_moves: int = 0
    picks: int = 0
    rejections: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    hand_off_refusals: Counter[str] = field(default_factory=Counter)
    expired_picks: int = 0
    reports: int = 0
    fenced: int = 0
    publishing: bool = False


def picker_values(
    counters: Counters, table: PodTable, pools: Iterable[PoolSpec], bus: BusPublisher | None
) -> Callable[[], Iterable[Value]]:
    """Return a source of every picker metric; `bus` is None where nothing is published."""
    pools = tuple(pools)

    def read() -> Iterable[Value]:
        yield from _counted(counters)
        yield from _pods(table)
        yield from _pools(table, pools)
        if bus is not None:
            yield Value(names.PICKER_BUS_CONNECTED, bus.connected)
            yield Value(names.PICKER_REPORTS_LOST, bus.coalesced, ("replaced",))
            yield Value(names.PICKER_REPORTS_LOST, bus.expired, ("expired",))
            yield Value(names.PICKER_REPORTS_LOST, bus.refused, ("refused",))

    return read


def _counted(counters: Counters) -> Iterable[Value]:
    yield Value(names.PICKER_POD_MOVES, counters.pod_moves)
    yield Value(names.PICKER_PICKS, counters.picks)
    yield Value(names.PICKER_EXPIRED_PICKS, counters.expired_picks)
    yield Value(names.PICKER_REPORTS, counters.reports)
    yield Value(names.PICKER_FENCED, counters.fenced)
    yield Value(names.PICKER_PUBLISHING, counters.publishing)
    for name, labelled in (
        (names.PICKER_SCRAPES, counters.scrapes),
        (names.PICKER_REJECTIONS, counters.rejections),
        (names.PICKER_OUTCOMES, counters.outcomes),
        (names.PICKER_HAND_OFF_REFUSALS, counters.hand_off_refusals),
    ):
        for label, count in sorted(labelled.items()):
            yield Value(name, count, (label,))


def _pods(table: PodTable) -> Iterable[Value]:
    missing: Counter[str] = Counter()
    old: Counter[str] = Counter()
    for pod in table:
        if pod.reading is not None:
            missing.update(pod.reading.missing)
        if pod.identity is not None and pod.identity.fault:
            old[pod.identity.fault] += 1
    for metric, count in sorted(missing.items()):
        yield Value(names.PICKER_MISSING_METRIC_PODS, count, (metric,))
    for metric, count in sorted(old.items()):
        yield Value(names.PICKER_OLD_ENGINE_PODS, count, (metric,))


def _pools(table: PodTable, pools: Iterable[PoolSpec]) -> Iterable[Value]:
    for pool in pools:
        pods = table.in_pool(pool.name)
        for state in PodState:
            count = sum(pod.state is state for pod in pods)
            yield Value(names.PICKER_PODS, count, (pool.name, state.value))
        serving, _ = table.serving(pool.name)
        yield Value(names.PICKER_SERVING_WITHOUT_METRICS, serving is Serving.DEGRADED, (pool.name,))
        yield Value(names.PICKER_IN_FLIGHT, sum(pod.in_flight for pod in pods), (pool.name,))
        report = pool_reports(table, [pool], draining=False)[0]
        yield Value(names.PICKER_READY_ENDPOINTS, report.ready_endpoints, (pool.name,))
        if report.saturation is not None:
            yield Value(names.PICKER_SATURATION, report.saturation, (pool.name,))
        yield from _rates(pool.name, table.ready(pool.name))


def _rates(pool: str, ready: Iterable[Pod]) -> Iterable[Value]:
    """Return what ready pods did in the last minute; of others nobody knows how long ago it was."""
    rates = [pod.rates.recent() for pod in ready if pod.rates is not None]
    for name, known, join in (
        (names.PICKER_PROMPT_TOKENS, [rate.prompt_tokens_per_s for rate in rates], sum),
        (names.PICKER_GENERATION_TOKENS, [rate.generation_tokens_per_s for rate in rates], sum),
        (names.PICKER_SERVER_PREFIX_HITS, [rate.prefix_hit_ratio for rate in rates], fmean),
    ):
        found = [value for value in known if value is not None]
        if found:
            yield Value(name, join(found), (pool,))
