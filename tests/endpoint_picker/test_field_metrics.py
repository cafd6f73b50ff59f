"""The field's metrics: told under both generations of names, bounded, and absent where nothing is known."""

from collections import Counter

import pytest

from services.adapters.metric_names import field as names
from services.adapters.system.build import package_version
from services.adapters.telemetry.cardinality import CappedLabel
from services.adapters.telemetry.histogram import LATENCY_SECONDS, Histogram
from services.adapters.telemetry.prometheus import MetricsPage
from services.core.pods.reading import EngineReading
from services.core.pods.table import Pod, PodTable
from services.core.units import Instant, ms, seconds
from services.endpoint_picker import field_metrics
from services.endpoint_picker.counters import Counters
from services.endpoint_picker.field_metrics import FieldMetrics, pool_values, process_values
from services.wire.openai.usage import NO_USAGE, Usage

START = Instant(0)


class Door:
    """What an ext_proc door counts."""

    def __init__(self) -> None:
        self.streams = 2
        self.streams_ended = Counter({"OK": 5})
        self.stream_seconds = Histogram(LATENCY_SECONDS)
        self.held_bytes = 512


ROW = ("m", "m-1", "acme", "2")


def found(metrics: FieldMetrics) -> dict[tuple[str, tuple[str, ...]], float | Histogram]:
    return {(value.name, value.labels): value.value for value in metrics.values()}


def total(value: float | Histogram) -> tuple[int, float]:
    assert isinstance(value, Histogram)
    return sum(value.counts), value.total


def test_an_answer_is_counted_under_both_names() -> None:
    metrics = FieldMetrics()
    row = metrics.row("m", "m-1", "acme", 2)
    row.requests += 1
    row.shapes.request_bytes.observe(512)
    row.shapes.ended(seconds(2), ms(500), Usage(100, 31, 64), streaming=True, response_bytes=2048)
    told = found(metrics)
    for metric, expected in (
        (names.REQUEST_SECONDS, (1, 2.0)),
        (names.REQUEST_BYTES, (1, 512)),
        (names.RESPONSE_BYTES, (1, 2048)),
        (names.INPUT_TOKENS, (1, 100)),
        (names.OUTPUT_TOKENS, (1, 31)),
        (names.CACHED_TOKENS, (1, 64)),
        (names.NTPOT_SECONDS, (1, 2.0 / 31)),
        (names.TPOT_SECONDS, (1, 1.5 / 30)),
    ):
        assert [total(told[name, ROW]) for name in metric.names] == [expected] * len(metric.names)
    assert total(told["llm_d_epp_request_ttft_seconds", (*ROW, "true")]) == (1, 0.5)
    assert total(told["llm_d_epp_request_ttft_seconds", (*ROW, "false")]) == (0, 0)
    assert told["inference_objective_request_total", ROW] == 1


def test_what_is_not_known_is_not_counted() -> None:
    metrics = FieldMetrics()
    row = metrics.row("m", "m-1", "acme", 2)
    row.shapes.ended(seconds(1), None, NO_USAGE, streaming=False, response_bytes=None)
    row.shapes.ended(seconds(1), ms(10), Usage(None, 0), streaming=True, response_bytes=None)
    told = found(metrics)
    assert total(told["llm_d_epp_request_output_tokens", ROW]) == (1, 0)
    assert all(
        total(told[f"llm_d_epp_{name}", ROW]) == (0, 0)
        for name in ("request_input_tokens", "request_ntpot_seconds", "request_streaming_tpot_seconds")
    )


def test_errors_attempts_and_rewrites_are_counted_by_their_labels() -> None:
    metrics = FieldMetrics()
    metrics.row("m", "m-1", "acme", 2).errors["ServiceUnavailable"] += 1
    metrics.attempted("m-1", "10.0.0.1:8000")
    metrics.attempted("m-1")
    metrics.rewrites["canary", "m", "m-1"] += 1
    metrics.running["m"] = 3
    told = found(metrics)
    assert told["llm_d_epp_request_error_total", (*ROW, "ServiceUnavailable")] == 1
    attempts = "inference_extension_scheduler_attempts_total"
    assert told[attempts, ("success", "m-1", "10.0.0.1", "", "8000")] == 1
    assert told[attempts, ("failure", "m-1", "", "", "")] == 1
    assert told["llm_d_epp_model_rewrite_decisions_total", ("canary", "m", "m-1")] == 1
    assert told["llm_d_epp_request_running", ("m",)] == 3


def test_combinations_of_labels_are_bounded() -> None:
    metrics = FieldMetrics()
    for number in range(field_metrics.ROWS_MAX + 10):
        row = metrics.row(f"m{number % 900}", "t", f"f{number // 900}", 0)
        row.requests += 1
        row.shapes.request_bytes.observe(1)
    told = found(metrics)
    rows = {labels: value for (name, labels), value in told.items() if name == "llm_d_epp_request_total"}
    assert len(rows) == field_metrics.ROWS_MAX + 1
    assert rows["other", "other", "other", "other"] == 10
    sizes = {
        labels: value for (name, labels), value in told.items() if name == "llm_d_epp_request_size_bytes"
    }
    assert len(sizes) == field_metrics.SHAPES_MAX + 1
    assert total(sizes["other", "other", "other", "other"])[0] == field_metrics.ROWS_MAX + 10 - len(sizes) + 1


def test_the_page_stays_small_whatever_tenants_and_models_requests_invent() -> None:
    metrics = FieldMetrics()
    for number in range(3_000):
        row = metrics.row(f"m{number}", f"t{number}", f"f{number}", number % 7)
        row.requests += 1
        row.shapes.ended(seconds(1), ms(1), Usage(1, 2, 3), streaming=True, response_bytes=9)
    assert len(MetricsPage([metrics.values]).render()) < 4 << 20


def test_names_of_the_configuration_never_fold_whatever_else_is_invented() -> None:
    metrics = FieldMetrics(CappedLabel(["declared"]), CappedLabel(["declared-1"]))
    for number in range(3_000):
        metrics.row(f"m{number}", f"t{number}", f"f{number}", number)
        metrics.attempted(f"t{number}", f"10.0.{number // 256}.{number % 256}:80")
        metrics.attempted(f"t{number}")
    for number in range(3_000):
        row = metrics.row("declared", "declared-1", f"f{number}", 0)
        row.requests += 1
        row.shapes.request_bytes.observe(1)
    metrics.attempted("declared-1", "10.9.9.9:80")
    told = found(metrics)
    labels = ("declared", "declared-1", "other", "other")
    assert told["llm_d_epp_request_total", labels] == 3_000
    assert total(told["llm_d_epp_request_size_bytes", labels])[0] == 3_000
    attempts = {
        key[1]: value for key, value in told.items() if key[0] == "llm_d_epp_scheduler_attempts_total"
    }
    assert len(attempts) <= field_metrics.ATTEMPTS_MAX + 3


def test_attempts_are_bounded_but_for_the_models_that_configuration_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(field_metrics, "ATTEMPTS_MAX", 2)
    metrics = FieldMetrics(targets=CappedLabel(["declared"]))
    for target, address in (
        ("a", "10.0.0.1:80"),
        ("b", "10.0.0.1:80"),
        ("a", "10.0.0.1:80"),
        ("c", "10.0.0.1:80"),
        ("declared", "10.0.0.2:80"),
        ("d", ""),
    ):
        metrics.attempted(target, address)
    attempts = "llm_d_epp_scheduler_attempts_total"
    assert {key[1]: value for key, value in found(metrics).items() if key[0] == attempts} == {
        ("success", "a", "10.0.0.1", "", "80"): 2,
        ("success", "b", "10.0.0.1", "", "80"): 1,
        ("success", "other", "other", "", "other"): 1,
        ("success", "declared", "other", "", "other"): 1,
        ("failure", "other", "", "", ""): 1,
    }


def test_the_process_tells_its_build_its_scrapes_and_its_streams() -> None:
    counters = Counters(scrapes=Counter({"ok": 7, "timeout": 2, "refused": 1}), incomplete_pages=4)
    page = MetricsPage([process_values(counters, Door())]).render().decode()
    for line in (
        f'llm_d_epp_info{{build_ref="{package_version()}",commit=""}} 1.0',
        'llm_d_epp_datalayer_poll_errors_total{source_type="metrics-data-source"} 3.0',
        'llm_d_epp_datalayer_extract_errors_total{extractor_type="core-metrics-extractor",source_type="metrics-data-source"} 4.0',
        "llm_d_epp_extproc_streams_inflight 2.0",
        "llm_d_epp_extproc_stream_duration_seconds_count 0",
        'llm_d_epp_extproc_streams_total{code="OK"} 5.0',
        "gir_picker_held_bodies_bytes 512.0",
    ):
        assert line in page


def test_pools_are_told_as_means_and_spreads_of_what_ready_pods_say() -> None:
    table = PodTable([Pod(name, f"{name}:8000", "chat") for name in ("a", "b", "c")], START)
    table["b"].in_flight, table["b"].in_flight_tokens = 2, 300
    table["c"].in_flight, table["c"].in_flight_tokens = 3, 600
    table.read("a", EngineReading("vllm", 4, 1, 0.25), START)
    table.read("b", EngineReading("vllm", 2, 3, None, missing=("vllm:kv_cache_usage_perc",)), START)
    page = MetricsPage([pool_values(table, ["chat", "empty"])]).render().decode()
    for line in (
        'llm_d_epp_ready_endpoints{name="chat"} 2.0',
        'inference_pool_ready_pods{name="empty"} 0.0',
        'inference_pool_average_queue_size{name="chat"} 3.0',
        'llm_d_epp_std_dev_queue_size{name="chat"} 1.0',
        'llm_d_epp_average_kv_cache_utilization{name="chat"} 0.25',
        'inference_pool_per_pod_queue_size{model_server_endpoint="a:8000",name="chat"} 4.0',
        'llm_d_epp_inflight_requests{name="chat"} 5.0',
        'llm_d_epp_inflight_tokens{name="chat"} 900.0',
    ):
        assert line in page
    assert 'average_queue_size{name="empty"}' not in page
