"""What waits, how long it did and what became of it, under both generations of the field's names."""

import pytest

from services.adapters.memory.clock import VirtualClock
from services.adapters.metric_names.catalogue import METRICS
from services.adapters.telemetry.cardinality import CappedLabel
from services.adapters.telemetry.histogram import Histogram
from services.core.admission.detectors import ConcurrencyDetector
from services.core.admission.settings import BandSettings, FlowControlSettings
from services.core.admission.tickets import Ticket
from services.core.pods.reading import EngineReading
from services.core.pods.table import Pod, PodTable
from services.core.units import Instant, ms, seconds
from services.endpoint_picker import flow_metrics
from services.endpoint_picker.flow_control import FlowControl
from services.endpoint_picker.flow_metrics import FlowMetrics
from services.endpoint_picker.saturation import PoolGauge

NOW = Instant(seconds(1))


def ticket(name: str, flow: str = "acme", priority: int = 0) -> Ticket:
    return Ticket(name, flow, "chat", priority, NOW, size_bytes=100)


def told(metrics: FlowMetrics, flow: FlowControl) -> dict[tuple[str, ...], float | Histogram]:
    values = list(metrics.values(flow.figures(), flow.saturations(NOW), flow.revocation_seconds))
    assert {value.name for value in values} <= set(METRICS)
    return {(value.name, *value.labels): value.value for value in values}


def queueing(
    metrics: FlowMetrics,
    pods: int = 1,
    settings: FlowControlSettings | None = None,
    table: PodTable | None = None,
) -> FlowControl:
    """Flow control over pods that take one request each and, unless told otherwise, have it."""
    pods_in = table or PodTable([Pod(f"p{n}", f"h{n}:1", "chat", in_flight=1) for n in range(pods)], NOW)
    for pod in pods_in:
        pods_in.read(pod.id, EngineReading("vllm", 0, 0, 0.0), NOW)
    detector = ConcurrencyDetector(max_concurrency=1)
    return FlowControl(
        settings or FlowControlSettings(),
        lambda pool: PoolGauge(pods_in, pool, detector),
        VirtualClock(),
        left=metrics.left,
    )


def offer(flow: FlowControl, one: Ticket) -> bool:
    return flow.admit(one, NOW, lambda: None, lambda *_: None)


def test_what_waits_is_told_by_flow_priority_and_pool_under_both_names() -> None:
    metrics = FlowMetrics()
    flow = queueing(metrics, 0)
    flow.settings = FlowControlSettings(no_endpoint_request_ttl=seconds(9))
    flow.__post_init__()
    for name, whose in (("a", "acme"), ("b", "acme"), ("c", "zeta")):
        assert not offer(flow, ticket(name, whose))
    found = told(metrics, flow)
    for prefix in ("llm_d_epp_", "inference_extension_"):
        assert found[f"{prefix}flow_control_queue_size", "acme", "0", "chat"] == 2
        assert found[f"{prefix}flow_control_queue_bytes", "zeta", "0", "chat"] == 100
    assert not [key for key in found if key[0].endswith("pool_saturation")]


def test_what_left_is_counted_by_its_outcome_and_its_time() -> None:
    metrics = FlowMetrics()
    flow = queueing(metrics)
    flow.saturations(NOW)
    metrics.left(ticket("a", priority=3), "Dispatched", ms(500))
    metrics.left(ticket("b", priority=3), "Dispatched", ms(1500))
    found = told(metrics, flow)
    waited = found["llm_d_epp_flow_control_request_queue_duration_seconds", "acme", "3", "chat", "Dispatched"]
    assert isinstance(waited, Histogram)
    assert (sum(waited.counts), waited.total) == (2, 2.0)


def test_outcomes_are_summed_over_lanes_and_saturation_is_told_of_pools_with_endpoints() -> None:
    metrics = FlowMetrics()
    flow = queueing(metrics)
    waiting = [ticket("a"), ticket("b", priority=5)]
    for one in waiting:
        assert not offer(flow, one)
    for one in waiting:
        flow.ended(one, NOW)
    found = told(metrics, flow)
    assert found["llm_d_epp_flow_control_pool_saturation", "chat", "effective"] == 1
    cancelled = ("llm_d_epp_flow_control_requests_total", "EvictedContextCancelled")
    assert (found[*cancelled, "0", "chat"], found[*cancelled, "5", "chat"]) == (1, 1)


def test_bands_and_revocations_are_told() -> None:
    metrics = FlowMetrics()
    settings = FlowControlSettings(priority_bands={5: BandSettings(max_requests=4)}, enable_eviction=True)
    table = PodTable([Pod("p", "h:1", "chat")], NOW)
    flow = queueing(metrics, settings=settings, table=table)
    spare, gold = ticket("a", priority=-1), ticket("b", priority=5)
    assert offer(flow, spare)
    table["p"].in_flight = 1
    assert not offer(flow, gold)
    found = told(metrics, flow)
    assert found["llm_d_epp_flow_control_capacity_utilization_requests", "5"] == 0.25
    assert found["llm_d_epp_flow_control_revocations_issued_total", "chat"] == 1
    assert found["llm_d_epp_flow_control_revocations_total", "confirmed", "chat"] == 0
    flow.ended(spare, NOW)
    found = told(metrics, flow)
    assert found["llm_d_epp_flow_control_revocations_total", "confirmed", "chat"] == 1
    ended = found[("llm_d_epp_flow_control_revocation_confirmation_seconds",)]
    assert isinstance(ended, Histogram)
    assert sum(ended.counts) == 1


def test_flows_and_series_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = FlowMetrics(CappedLabel(most=1))
    flow = queueing(metrics)
    for name in ("a", "b", "c"):
        metrics.left(ticket(name, name), "Dispatched", ms(1))
    assert {key[1] for key in told(metrics, flow) if "queue_duration" in key[0]} == {"a", "other"}
    monkeypatch.setattr(flow_metrics, "SERIES_MAX", 2)
    metrics.left(ticket("d", "a", 9), "Dispatched", ms(1))
    assert {key[1:4] for key in told(metrics, flow) if "queue_duration" in key[0]} == {
        ("a", "0", "chat"),
        ("other", "0", "chat"),
        ("other", "other", "chat"),
    }
