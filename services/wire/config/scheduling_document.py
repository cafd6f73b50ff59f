"""The shape of an `EndpointPickerConfig` document, field for field, before anything is looked up.

Names and references may be empty here, because the field's loader words those faults itself (`scheduling`).
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from services.wire.config.field_types import Kind, Many


class Plugin(Kind):
    """A plugin's declaration; without a name it is called by its type."""

    name: str = ""
    type: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)


class Reference(Kind):
    """A plugin referred to by name."""

    plugin_ref: str = ""


class WeightedReference(Reference):
    """A plugin of a profile; the weight is a scorer's."""

    weight: float | None = None


class Profile(Kind):
    """A scheduling profile: filters and scorers in order, one picker."""

    name: str = ""
    plugins: Many[WeightedReference] = ()


class Source(Reference):
    """A data source with its extractors."""

    extractors: Many[Reference] = ()


class DataLayer(Kind):
    """Where signals come from. Discovery and sync between replicas are settings of the picker."""

    inject_defaults: bool = True
    sources: Many[Source] = ()


Quantity = int | str
"""A count, or text with a binary or decimal suffix."""


class Band(Kind):
    """Limits and policies of one priority, or of those without a band of their own."""

    priority: int | None = None
    max_bytes: Quantity | None = None
    max_requests: Quantity | None = None
    fairness_policy_ref: str | None = None
    ordering_policy_ref: str | None = None


class FlowControl(Kind):
    """Queues in front of the pick. Times are text such as `60s`."""

    max_bytes: Quantity | None = None
    max_requests: Quantity | None = None
    default_request_ttl: Annotated[str | None, Field(alias="defaultRequestTTL")] = None
    no_endpoint_request_ttl: Annotated[str | None, Field(alias="noEndpointRequestTTL")] = None
    default_priority_band: Band | None = None
    default_negative_priority_band: Band | None = None
    priority_bands: Many[Band] = ()
    usage_limit_policy_plugin_ref: str | None = None
    saturation_detector: Reference | None = None
    enable_eviction: bool = False


class RequestHandler(Kind):
    """How requests are read."""

    parsers: Many[Reference] = ()


class Document(Kind):
    """The whole document."""

    api_version: str
    kind: Literal["EndpointPickerConfig"]
    feature_gates: Many[str] = ()
    plugins: Many[Plugin] = ()
    scheduling_profiles: Many[Profile] = ()
    data_layer: DataLayer | None = None
    flow_control: FlowControl | None = None
    request_handler: RequestHandler | None = None
    saturation_detector: Reference | None = None
    parser: Reference | None = None
