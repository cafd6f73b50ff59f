"""How a picked request ended: the closed set that doors report and that a metric is labelled with."""

import enum


class Outcome(enum.Enum):
    """Ends of a pick, as in the `Outcome` of picker.proto; `UNTOLD` where a data plane does not say how it ended."""

    SUCCEEDED = "succeeded"
    CONNECT_FAILED = "connect_failed"
    GATEWAY_ERROR = "gateway_error"
    BROKEN_OFF = "broken_off"
    SATURATED = "saturated"
    CANCELLED = "cancelled"
    UNTOLD = "untold"
