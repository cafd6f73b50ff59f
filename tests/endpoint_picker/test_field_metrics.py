"""The field's metrics: told under both generations of names, bounded, and absent where nothing is known."""

from services.adapters.metric_names import field as names
from services.adapters.telemetry.histogram import Histogram
from services.adapters.telemetry.prometheus import MetricsPage
from services.core.pods.reading import EngineReading
from services.core.pods.table import Pod, PodTable
from services.core.units import Instant, ms, seconds
from services.endpoint_picker import field_metrics
from services.endpoint_picker.field_metrics import FieldMetrics, pool_values
from services.wire.openai.usage import NO_USAGE, Usage

START = Instant(0)
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
    assert rows["other", "other", "other", "0"] == 10
    sizes = {
        labels: value for (name, labels), value in told.items() if name == "llm_d_epp_request_size_bytes"
    }
    assert len(sizes) == field_metrics.SHAPES_MAX + 1
    assert total(sizes["other", "other", "other", "0"])[0] == field_metrics.ROWS_MAX + 10 - len(sizes) + 1


def test_the_page_stays_small_whatever_tenants_and_models_requests_invent() -> None:
    metrics = FieldMetrics()
    for number in range(3_000):
        row = metrics.row(f"m{number}", f"t{number}", f"f{number}", number % 7)
        row.requests += 1
        row.shapes.ended(seconds(1), ms(1), Usage(1, 2, 3), streaming=True, response_bytes=9)
    assert len(MetricsPage([metrics.values]).render()) < 4 << 20


def test_pools_are_told_as_means_and_spreads_of_what_ready_pods_say() -> None:
    table = PodTable([Pod(name, f"{name}:8000", "chat") for name in ("a", "b", "c")], START)
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
        'llm_d_epp_inflight_requests{name="chat"} 0.0',
    ):
        assert line in page
    assert 'average_queue_size{name="empty"}' not in page
