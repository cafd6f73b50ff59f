"""`flowControl` of an `EndpointPickerConfig` -> settings of flow control.

Quantities are Kubernetes' (`500`, `1Gi`), times Go's (`1m30s`). What the settings mean is `core/admission`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from services.core.admission.settings import BandSettings, FlowControlSettings
from services.core.units import Duration, ms
from services.wire.config.scheduling_document import Band, FlowControl, Quantity, Reference
from services.wire.config.scheduling_plugins import Role

Find = Callable[[str, str, Role], Any]
"""From (path, plugin name, role) to the plugin's value; refuses what is not there or not of the role."""

_QUANTITY: Final = re.compile(r"([0-9]{1,15})(k|M|G|T|Ki|Mi|Gi|Ti)?\Z")
_SCALES: Final[Mapping[str, int]] = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
}
_PART: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)")
_TIME: Final = re.compile(rf"(?:{_PART.pattern})+\Z")
_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


def quantity(value: Quantity | None) -> int | None:
    """Return the number a quantity stands for, None for None; raises `ValueError` with the rule."""
    if value is None or isinstance(value, int):
        return value
    match = _QUANTITY.match(value)
    if match is None:
        raise ValueError(f"{value[:40]!r} must be a whole number with a suffix such as Mi or G, or none")
    return int(match[1]) * _SCALES[match[2] or ""]


def duration(value: str) -> Duration:
    """Return the span of a Go duration; raises `ValueError` with the rule."""
    if _TIME.match(value) is None and value != "0":
        raise ValueError(f"{value[:40]!r} must be a time such as 500ms, 60s or 1m30s")
    return ms(sum(float(number) * _MS[unit] for number, unit in _PART.findall(value)))


def flow_control(given: FlowControl | None, find: Find, detector: Reference | None) -> FlowControlSettings:
    """Return the settings; `detector` is the deprecated reference at the top of the document.

    Raises `ValueError` with the rule for values that make no sense.
    """
    asked = given or FlowControl()
    settings = FlowControlSettings(
        max_requests=quantity(asked.max_requests),
        max_bytes=quantity(asked.max_bytes),
        enable_eviction=asked.enable_eviction,
        default_priority_band=_band("defaultPriorityBand", asked.default_priority_band, find),
        default_negative_priority_band=_band(
            "defaultNegativePriorityBand", asked.default_negative_priority_band, find
        ),
        priority_bands=_bands(asked, find),
    )
    if asked.default_request_ttl is not None:
        settings = replace(settings, default_request_ttl=duration(asked.default_request_ttl))
    if asked.no_endpoint_request_ttl is not None:
        settings = replace(settings, no_endpoint_request_ttl=duration(asked.no_endpoint_request_ttl))
    if asked.usage_limit_policy_plugin_ref is not None:
        path = "flowControl.usageLimitPolicyPluginRef"
        limit = find(path, asked.usage_limit_policy_plugin_ref, Role.USAGE_LIMIT)
        settings = replace(settings, usage_limit=limit)
    reference = asked.saturation_detector or detector
    if reference is not None:
        where = "flowControl.saturationDetector" if asked.saturation_detector else "saturationDetector"
        found = find(f"{where}.pluginRef", reference.plugin_ref, Role.DETECTOR)
        settings = replace(settings, saturation_detector=found)
    return settings


def _bands(asked: FlowControl, find: Find) -> dict[int, BandSettings]:
    bands: dict[int, BandSettings] = {}
    for place, band in enumerate(asked.priority_bands):
        if band.priority is None:
            raise ValueError(f"priorityBands[{place}] is missing a priority")
        if band.priority in bands:
            raise ValueError(f"priorityBands[{place}] has duplicate priority {band.priority}")
        bands[band.priority] = _band(f"priorityBands[{place}]", band, find)
    return bands


def _band(path: str, band: Band | None, find: Find) -> BandSettings:
    settings = BandSettings()
    if band is None:
        return settings
    max_requests, max_bytes = quantity(band.max_requests), quantity(band.max_bytes)
    if max_requests is not None:
        settings = replace(settings, max_requests=max_requests)
    if max_bytes is not None:
        settings = replace(settings, max_bytes=max_bytes)
    if band.fairness_policy_ref is not None:
        fairness = find(f"flowControl.{path}.fairnessPolicyRef", band.fairness_policy_ref, Role.FAIRNESS)
        settings = replace(settings, fairness=fairness)
    if band.ordering_policy_ref is not None:
        ordering = find(f"flowControl.{path}.orderingPolicyRef", band.ordering_policy_ref, Role.ORDERING)
        settings = replace(settings, ordering=ordering)
    return settings
