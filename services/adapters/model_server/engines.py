"""The engines a picker can read, by the names the field gives them, and which one a pod runs.

A pod's label says it, else the pool's configuration; `auto` goes by the page itself. What the engines' metrics
mean is in their own modules; fetching and scheduling are not here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from services.adapters.model_server import sglang, tgi, triton, trtllm, vllm
from services.core.pods.reading import EngineIdentity, EngineReading

AUTO = "auto"
LABELS = ("llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type")
"""Pod labels that name the engine, the current one first."""
UNKNOWN_PAGE = "any known engine's metrics"
"""What a page of no known engine lacks."""


class ReadPage(Protocol):
    """Reads a metrics page; `with_ttft` asks for what is needed once a second too: histogram and totals."""

    def __call__(self, page: bytes, *, with_ttft: bool) -> EngineReading:
        """Return the reading."""


class Reader(Protocol):
    """One engine's reader; it serves every pod and keeps no pod's state."""

    def read(self, page: bytes, *, with_ttft: bool) -> EngineReading:
        """Return the reading."""


_METRICS_PATH = "/metrics"
_TRITON_METRICS_PORT = 8002


@dataclass(frozen=True, slots=True)
class EngineKind:
    """One kind of model server. `mark` begins the names of its metrics and of nobody else's before it in order.

    `version_paths` are asked in turn on the serving port until one holds a version. `metrics_port` is where its
    metrics stand if that is not the serving port.
    """

    name: str
    mark: bytes
    reader: Callable[[], Reader]
    identify: Callable[[str], EngineIdentity]
    version_paths: tuple[str, ...]
    metrics_path: str = _METRICS_PATH
    metrics_port: int | None = None


_KINDS = (
    EngineKind(vllm.ENGINE, b"vllm:", vllm.VllmReader, vllm.identify, ("/version",)),
    EngineKind(
        sglang.ENGINE, b"sglang:", sglang.SglangReader, sglang.identify, ("/get_server_info", "/server_info")
    ),
    EngineKind(
        trtllm.ENGINE, b"trtllm_", trtllm.TrtllmReader, trtllm.identify, ("/version",), "/prometheus/metrics"
    ),
    EngineKind(
        triton.TRTLLM_ENGINE,
        b"nv_trt_llm_",
        triton.TritonTrtllmReader,
        triton.identify_trtllm,
        ("/v2",),
        metrics_port=_TRITON_METRICS_PORT,
    ),
    EngineKind(
        triton.ENGINE,
        b"nv_inference_",
        triton.TritonReader,
        triton.identify,
        ("/v2",),
        metrics_port=_TRITON_METRICS_PORT,
    ),
    EngineKind(tgi.ENGINE, b"tgi_", tgi.TgiReader, tgi.identify, ("/info",)),
)
ENGINES: Mapping[str, EngineKind] = MappingProxyType({kind.name: kind for kind in _KINDS})
CHOICES = (*ENGINES, AUTO)
"""What a pool's `engine` may be."""


def engine_named(configured: str, labels: Mapping[str, str]) -> str:
    """Return the engine of a pod: what its label says, if known, else what is configured for its pool."""
    return next((labels[label] for label in LABELS if labels.get(label) in CHOICES), configured)


def metrics_url(address: str, engine: str, path: str = "", port: int | None = None) -> str:
    """Return where the metrics of a pod at `address` (`host:port`, IPv6 in brackets) stand.

    `path` and `port` replace the engine's own. Pages that `auto` is to recognise are expected where most engines have them.
    """
    kind = ENGINES.get(engine)
    if port is None and kind is not None:
        port = kind.metrics_port
    if port is not None:
        address = f"{address.rpartition(':')[0]}:{port}"
    return f"http://{address}{path or (_METRICS_PATH if kind is None else kind.metrics_path)}"


def version_urls(address: str, engine: str) -> tuple[str, ...]:
    """Return where a pod that runs `engine` may tell its version, to be asked in turn; none of no known engine."""
    kind = ENGINES.get(engine)
    return () if kind is None else tuple(f"http://{address}{path}" for path in kind.version_paths)


def recognise(page: bytes) -> EngineKind | None:
    """Return whose metrics `page` holds; of several, the one nearest the model (a backend before its server)."""
    return next((kind for kind in _KINDS if _shows(page, kind)), None)


def _shows(page: bytes, kind: EngineKind) -> bool:
    return page.startswith(kind.mark) or b"\n" + kind.mark in page


class Readers:
    """Every engine's reader, made once so that a label block is decoded once for all pods.

    Looking for six engines' names in a page costs as much as reading it, so `auto` looks first for the engine it
    met last: pods of one pool run one engine.
    """

    def __init__(self) -> None:
        self._readers = {name: kind.reader() for name, kind in ENGINES.items()}
        self._likely = _KINDS[0]

    def reader(self, engine: str) -> ReadPage:
        """Return how to read pages of `engine`, one of `CHOICES`. Raises KeyError for another."""
        return self._recognised if engine == AUTO else self._readers[engine].read

    def _recognised(self, page: bytes, *, with_ttft: bool) -> EngineReading:
        kind = self._likely if _shows(page, self._likely) else recognise(page)
        if kind is None:
            return EngineReading(AUTO, missing=(UNKNOWN_PAGE,))
        if kind.name != triton.ENGINE:  # Its names stand on pages of its backends too, which come first.
            self._likely = kind
        return self._readers[kind.name].read(page, with_ttft=with_ttft)
