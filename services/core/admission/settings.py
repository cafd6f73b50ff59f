"""What operators declare of flow control: frozen, refused at birth when it makes no sense.

Names follow `flowControl` of the field's EndpointPickerConfig, so that one maps onto the other. Saturation
detectors and usage limits are settings and functions at once and have their own files.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.core.admission.detectors import SaturationDetector, UtilizationDetector
from services.core.admission.usage_limits import StaticLimit, UsageLimit
from services.core.units import Duration, ms, seconds

GIGABYTE = 1_000_000_000
_ONE_CEILING = StaticLimit()
_BY_UTILIZATION = UtilizationDetector()


class Fairness(enum.Enum):
    """Who is next within a band. Values are the names in configuration.

    MAX_MIN: the flow that has had the fewest tokens since it began to wait. ROUND_ROBIN: one request each.
    GLOBAL_STRICT: the best request by the band's ordering, whoever sent it.
    """

    MAX_MIN = "max-min-fairness-policy"
    ROUND_ROBIN = "round-robin-fairness-policy"
    GLOBAL_STRICT = "global-strict-fairness-policy"


class Ordering(enum.Enum):
    """Which request of a flow is next. FCFS: the oldest. EDF: enqueue + TTL. SLO: received + the caller's TTFT."""

    FCFS = "fcfs-ordering-policy"
    EDF = "edf-ordering-policy"
    SLO_DEADLINE = "slo-deadline-ordering-policy"


@dataclass(frozen=True, slots=True)
class BandSettings:
    """Limits and policies of one priority, over all pools. `ttl` narrows the general one for this band."""

    max_requests: int = 5000
    max_bytes: int = GIGABYTE
    fairness: Fairness = Fairness.MAX_MIN
    ordering: Ordering = Ordering.FCFS
    ttl: Duration | None = None

    def __post_init__(self) -> None:
        """Refuse a band that could never hold a request."""
        if self.max_requests < 1 or self.max_bytes < 1:
            raise ValueError("flowControl band: maxRequests and maxBytes must be at least 1")
        if self.ttl is not None and self.ttl <= 0:
            raise ValueError("flowControl band: ttl must be above 0")


@dataclass(frozen=True, slots=True)
class FlowControlSettings:
    """Flow control of one picker. `max_requests` and `max_bytes` bound all bands together; None is no bound.

    `no_endpoint_request_ttl` is how long a request waits for a pool without endpoints. It is 0: a 503 at once
    lets a router go to another cluster, where the field's default (as long as any other) holds the request for a
    minute. A single cluster that scales from zero sets it above its start-up time.
    """

    max_requests: int | None = None
    max_bytes: int | None = None
    default_request_ttl: Duration = seconds(60)
    no_endpoint_request_ttl: Duration = ms(0)
    default_priority_band: BandSettings = BandSettings()
    default_negative_priority_band: BandSettings = BandSettings()
    priority_bands: Mapping[int, BandSettings] = field(default_factory=dict)
    usage_limit: UsageLimit = _ONE_CEILING
    saturation_detector: SaturationDetector = _BY_UTILIZATION
    enable_eviction: bool = False

    def __post_init__(self) -> None:
        """Refuse limits and times under which nothing could ever wait."""
        for name, bound in (("maxRequests", self.max_requests), ("maxBytes", self.max_bytes)):
            if bound is not None and bound < 1:
                raise ValueError(f"flowControl.{name} must be at least 1")
        if self.default_request_ttl <= 0:
            raise ValueError("flowControl.defaultRequestTTL must be above 0")
        if self.no_endpoint_request_ttl < 0:
            raise ValueError("flowControl.noEndpointRequestTTL must not be negative")

    def band(self, priority: int) -> BandSettings:
        """Return the settings of a priority: its own, else the default of its sign."""
        default = self.default_priority_band if priority >= 0 else self.default_negative_priority_band
        return self.priority_bands.get(priority, default)

    def ttl(self, priority: int) -> Duration:
        """Return how long a request of this priority may wait: the least of all that limit it."""
        own = self.band(priority).ttl
        return self.default_request_ttl if own is None else min(own, self.default_request_ttl)
