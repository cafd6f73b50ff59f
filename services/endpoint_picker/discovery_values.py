"""Metrics of discovery: which sources are broken, and when pools that warm up will serve.

Read when a page is asked for; nothing is decided here.
"""

from collections.abc import Callable, Iterable, Mapping

from services.adapters.metric_names import discovery as names
from services.adapters.ports import Clock, EndpointDiscovery
from services.adapters.telemetry.prometheus import Value
from services.core.pods.report import PoolSpec, warming_eta_ms
from services.core.pods.table import PodTable


def discovery_values(
    sources: Mapping[str, EndpointDiscovery], table: PodTable, pools: Iterable[PoolSpec], clock: Clock
) -> Callable[[], Iterable[Value]]:
    """Return a source of the metrics; pools that settings list have no source that could break."""
    pools = tuple(pools)

    def read() -> Iterable[Value]:
        for pool, source in sources.items():
            yield Value(names.DISCOVERY_BROKEN, bool(source.trouble), (pool,))
        for spec in pools:
            eta_ms = warming_eta_ms(table, spec, clock.now())
            if eta_ms is not None:
                yield Value(names.WARMING_ETA, eta_ms / 1000, (spec.name,))

    return read
