"""Spans: the caller's decision is followed, children hang together, and what is not sampled costs nothing."""

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from services.adapters.telemetry.tracing import Tracing, otlp

TRACE = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = f"00-{TRACE}-b7ad6b7169203331-01"
NOT_SAMPLED = f"00-{TRACE}-b7ad6b7169203331-00"


def test_a_span_joins_its_callers_trace_and_passes_it_on() -> None:
    exporter = InMemorySpanExporter()
    tracing = Tracing(exporter, "gir-picker", ratio=0.0)
    span = tracing.begin("gateway.request", SAMPLED, {"gen_ai.request.model": "m"})
    assert span is not None
    child = span.child("pick", {"n": 1})
    child.note({"endpoint": "a:1"})
    child.end()
    assert span.traceparent.split("-")[1] == TRACE
    assert span.traceparent != SAMPLED
    span.end("no endpoint")
    tracing.close()
    inner, outer = exporter.get_finished_spans()
    assert (outer.name, inner.name) == ("gateway.request", "pick")
    assert inner.parent is not None
    assert inner.parent.span_id == outer.context.span_id
    assert dict(inner.attributes or {}) == {"n": 1, "endpoint": "a:1"}
    assert (outer.status.is_ok, outer.status.description) == (False, "no endpoint")


@pytest.mark.parametrize(
    ("traceparent", "ratio", "sampled"),
    [
        (NOT_SAMPLED, 1.0, False),
        (SAMPLED, 0.0, True),
        (None, 0.0, False),
        (None, 1.0, True),
        ("rubbish", 0.0, False),
        ("rubbish", 1.0, True),
    ],
)
def test_the_callers_decision_comes_before_the_ratio(
    traceparent: str | None, ratio: float, sampled: bool
) -> None:
    tracing = Tracing(InMemorySpanExporter(), "gir-picker", ratio)
    span = tracing.begin("gateway.request", traceparent, {})
    assert (span is not None) is sampled
    if span is not None:
        span.end()
    tracing.close()


class Collector(BaseHTTPRequestHandler):
    """A real OTLP endpoint that keeps the names of spans."""

    names: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        document = json.loads(gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
        for resource in document["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                self.names.extend(span["name"] for span in scope["spans"])
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


def test_spans_reach_a_collector_over_otlp() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        tracing = otlp(f"http://127.0.0.1:{server.server_port}/v1/traces", "gir-picker", ratio=1.0)
        span = tracing.begin("gateway.request", None, {"n": 1})
        assert span is not None
        span.end()
        tracing.close()
        server.shutdown()
        serving.join()
    assert Collector.names == ["gateway.request"]
