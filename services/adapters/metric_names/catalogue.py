"""The closed list of metrics: a name that is not here cannot be exported."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from services.adapters.metric_names import discovery, field, picker, prefix, router
from services.adapters.metric_names.spec import MetricSpec

METRICS: Final[Mapping[str, MetricSpec]] = MappingProxyType(
    {spec.name: spec for module in (picker, prefix, discovery, router, field) for spec in module.SPECS}
)
"""Every metric by name."""
