"""Metrics of where endpoints come from: sources that are broken, pools that warm up.

Labels are names of pools, which come from configuration.
"""

from typing import Final

from services.adapters.metric_names.spec import MetricSpec, gauge

DISCOVERY_BROKEN: Final = "gir_discovery_broken"
WARMING_ETA: Final = "gir_discovery_warming_eta_seconds"

SPECS: Final[tuple[MetricSpec, ...]] = (
    gauge(
        DISCOVERY_BROKEN,
        ("pool",),
        "1 while the source of the pool's endpoints is away or broken and the last set stays in force.",
        "1: the log says why; pods that come or go meanwhile are not noticed.",
    ),
    gauge(
        WARMING_ETA,
        ("pool",),
        "Seconds until the first warming pod of the pool will be ready; absent when nobody warms up or it is unknown.",
        "Growing: starts take longer than those measured before; look at image pulls and weights.",
        unit="seconds",
    ),
)
