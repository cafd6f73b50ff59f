"""The part of a metrics page that speaks of the server process: constant, and most of a real page's length.

A scraper must find some thirty lines among more than a thousand of these, so pages of real size matter to
what a scrape costs. The families have the form that prometheus-fastapi-instrumentator adds to a server;
their numbers stand still.
"""

from itertools import product

from services.simulator.exposition import Metric

PAGE_LINES_MAX = 2_000
"""Longest page that can be asked for; with every route, method and status it has about as many lines."""

_ROUTES = (
    "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/models", "/tokenize",
    "/detokenize", "/pooling", "/classify", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank",
    "/v1/audio/transcriptions", "/v1/audio/translations", "/health", "/load", "/ping", "/version",
    "/invocations", "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/metrics", "none",
)  # fmt: skip
_STATUSES = ("2xx", "3xx", "4xx", "5xx")
_METHODS = ("GET", "POST")
_FAMILIES = (
    (
        Metric("http_request_duration_seconds", "histogram", "Latency with only few buckets by handler."),
        ('_bucket{%s,le="0.1"}', '_bucket{%s,le="0.5"}', '_bucket{%s,le="1.0"}', '_bucket{%s,le="+Inf"}',
         "_count{%s}", "_sum{%s}"),
    ),
    (
        Metric("http_request_size_bytes", "summary", "Content length of incoming requests by handler."),
        ("_count{%s}", "_sum{%s}"),
    ),
    (
        Metric("http_requests_total", "counter", "Total number of requests by method, status and handler."),
        ("{%s}",),
    ),
)  # fmt: skip


def process_page(lines: int) -> bytes:
    """Return process metrics of at least `lines` lines, as far as `PAGE_LINES_MAX` goes."""
    page: list[str] = []
    for metric, suffixes in _FAMILIES:
        if len(page) >= lines:
            break
        page += metric.head().splitlines(keepends=True)
        for route, method, status in product(_ROUTES, _METHODS, _STATUSES):
            labels = f'handler="{route}",method="{method}",status="{status}"'
            page += [f"{metric.name}{suffix % labels} 0.0\n" for suffix in suffixes]
            if len(page) >= lines:
                break
    return "".join(page).encode()
