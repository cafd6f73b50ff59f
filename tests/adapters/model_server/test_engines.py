"""Which engine a pod runs, by label, configuration or page, and where it tells its metrics and version."""

import pytest

from services.adapters.model_server.engines import (
    AUTO,
    CHOICES,
    ENGINES,
    UNKNOWN_PAGE,
    Readers,
    engine_named,
    metrics_url,
    recognise,
    version_urls,
)
from services.core.pods.reading import EngineReading
from tests.adapters.model_server.releases import RELEASES, Release

NOW, BEFORE = "llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type"


def test_the_engines_bear_the_names_of_the_field() -> None:
    """Those of the llm-d router's built-in configurations, and one for Text Generation Inference."""
    field = {"vllm", "sglang", "trtllm-serve", "triton-tensorrt-llm", "triton", "tgi"}
    assert set(ENGINES) == field
    assert set(CHOICES) == field | {"auto"}


@pytest.mark.parametrize(
    ("labels", "engine"),
    [
        ({}, "vllm"),
        ({NOW: "sglang"}, "sglang"),
        ({BEFORE: "tgi"}, "tgi"),
        ({NOW: "triton", BEFORE: "tgi"}, "triton"),
        ({NOW: "auto"}, "auto"),
        ({NOW: "llamacpp"}, "vllm"),
        ({NOW: "llamacpp", BEFORE: "tgi"}, "tgi"),
        ({NOW: ""}, "vllm"),
        ({"app": "sglang"}, "vllm"),
    ],
)
def test_a_pods_label_goes_before_its_pools_configuration(labels: dict[str, str], engine: str) -> None:
    assert engine_named("vllm", labels) == engine


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_every_release_is_recognised_by_its_page(release: Release) -> None:
    kind = recognise(release.page)
    assert kind is not None
    assert kind.name == release.engine


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"go_goroutines 12\n",
        b"# HELP vllm:num_requests_waiting Not a sample.\n",
        b'other{model="x\\nvllm:num_requests_waiting 3"} 1\n',
        b"gpu_vllm:x 1\n",
    ],
)
def test_a_page_without_an_engines_samples_is_nobodys(page: bytes) -> None:
    assert recognise(page) is None
    assert Readers().reader(AUTO)(page, with_ttft=True) == EngineReading(AUTO, missing=(UNKNOWN_PAGE,))


def test_auto_reads_every_page_in_every_order_as_its_own_engine_does() -> None:
    readers = Readers()
    auto = readers.reader(AUTO)
    for release in (*RELEASES, *reversed(RELEASES)):
        for with_ttft in (True, False):
            own = readers.reader(release.engine)(release.page, with_ttft=with_ttft)
            assert auto(release.page, with_ttft=with_ttft) == own


def test_a_backend_is_seen_behind_its_server_even_after_the_server_alone() -> None:
    auto = Readers().reader(AUTO)
    for engine, version in (("triton", "2.60.0"), ("triton-tensorrt-llm", "2.60.0"), ("triton", "2.60.0")):
        assert auto(Release(engine, version).page, with_ttft=False).engine == engine


def test_no_reader_for_what_is_no_engine() -> None:
    with pytest.raises(KeyError, match="llamacpp"):
        Readers().reader("llamacpp")


@pytest.mark.parametrize(
    ("engine", "path", "url"),
    [
        ("vllm", "", "http://10.0.0.1:8000/metrics"),
        ("trtllm-serve", "", "http://10.0.0.1:8000/prometheus/metrics"),
        ("triton", "", "http://10.0.0.1:8002/metrics"),
        ("triton-tensorrt-llm", "/m", "http://10.0.0.1:8002/m"),
        ("trtllm-serve", "/metrics", "http://10.0.0.1:8000/metrics"),
        ("auto", "", "http://10.0.0.1:8000/metrics"),
        ("auto", "/m", "http://10.0.0.1:8000/m"),
    ],
)
def test_where_metrics_stand(engine: str, path: str, url: str) -> None:
    assert metrics_url("10.0.0.1:8000", engine, path) == url


@pytest.mark.parametrize("engine", ["vllm", "triton", "auto"])
def test_a_port_of_its_own_goes_before_the_engines(engine: str) -> None:
    assert metrics_url("[fd00::1]:8000", engine, "", 9100) == "http://[fd00::1]:9100/metrics"


def test_where_versions_stand() -> None:
    assert {engine: version_urls("h:1", engine) for engine in CHOICES} == {
        "vllm": ("http://h:1/version",),
        "sglang": ("http://h:1/get_server_info", "http://h:1/server_info"),
        "trtllm-serve": ("http://h:1/version",),
        "triton-tensorrt-llm": ("http://h:1/v2",),
        "triton": ("http://h:1/v2",),
        "tgi": ("http://h:1/info",),
        "auto": (),
    }
