"""Every header and metadata key of the Endpoint Picker Protocol v1, one sentence each.

Source: gateway-api-inference-extension, docs/proposals/004-endpoint-picker-protocol (v1.0.0, 2025-07-29), and
the control headers of the llm-d router. Two generations of names are read, `x-llm-d-*` and its elder
`x-gateway-*`; the younger wins. Only names live here: what they do to a request is other files' to say.
"""

from collections.abc import Callable, Iterable
from typing import Final

from services.wire.control_headers import STRIPPED_LETTER, STRIPPED_PREFIXES

SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"
"""The gRPC service that a data plane calls, one stream per HTTP request."""

# --- Data plane -> picker -----------------------------------------------------------------------

SUBSET_NAMESPACE: Final = "envoy.lb.subset_hint"
"""Filter metadata in which a gateway names the endpoints it allows for this request."""
SUBSET_KEY: Final = "x-gateway-destination-endpoint-subset"
"""The allowed endpoints, a list or a comma string of `ip` or `ip:port`; present but matching nobody means 503."""
SERVED_KEY: Final = "x-gateway-destination-endpoint-served"
"""In the response phase, under `envoy.lb`: the endpoint that really served; may be missing."""

# --- Picker -> data plane -----------------------------------------------------------------------

LB_NAMESPACE: Final = "envoy.lb"
"""Dynamic metadata that load-balancing policies read."""
DESTINATION: Final = "x-gateway-destination-endpoint"
"""The decision, as request header and as metadata: `ip:port[,ip:port]*`, the primary and its ordered fallbacks."""
SCORES_KEY: Final = "x-gateway-destination-endpoint-scores"
"""Under `envoy.lb`, only when asked for: a struct from endpoint to its score."""
DROPPED_REASON: Final = "x-llm-d-request-dropped-reason"
"""On a refusal: the field's word for why."""
WENT_THROUGH: Final = "x-went-into-resp-headers"
"""On an answer whose response phase the picker saw: `true`."""

# --- Control headers of a client or gateway -----------------------------------------------------

FAIRNESS_ID: Final = (b"x-llm-d-inference-fairness-id", b"x-gateway-inference-fairness-id")
"""The flow whose share of a contended pool this request uses."""
OBJECTIVE: Final = (b"x-llm-d-inference-objective", b"x-gateway-inference-objective")
"""The name of the InferenceObjective whose priority this request has."""
MODEL_REWRITE: Final = (b"x-llm-d-model-name-rewrite", b"x-gateway-model-name-rewrite")
"""The name under which the model server knows the model; written into the body, and back in the answer."""
TTFT_SLO_MS: Final = (b"x-llm-d-slo-ttft-ms", b"x-slo-ttft-ms")
"""How soon the first token is wanted, in milliseconds."""
TPOT_SLO_MS: Final = (b"x-llm-d-slo-tpot-ms", b"x-slo-tpot-ms")
"""How soon each further token is wanted, in milliseconds."""
VIDEO_FPS: Final = (b"x-llm-d-video-fps",)
"""Frames per second of a video in the prompt, for its token estimate."""
VIDEO_DURATION_S: Final = (b"x-llm-d-video-duration-seconds",)
"""Length of a video in the prompt, for its token estimate."""
VIDEO_RESOLUTION: Final = (b"x-llm-d-video-resolution",)
"""Resolution of a video in the prompt, for its token estimate."""
PREFER: Final = b"prefer"
"""With `if-available`: answer 412 rather than serve from a pod that holds none of the prompt."""
SESSION_TOKEN: Final = b"x-session-token"
"""Base64 of the endpoint that served this session before."""
SESSION_ID: Final = b"x-session-id"
"""The session that the picker itself remembers the endpoint of."""
REQUEST_ID: Final = b"x-request-id"
"""The client's own id: echoed and logged, never a key."""
TRACE_PARENT: Final = b"traceparent"
"""W3C trace context; travels on to the model server."""

# --- Headers between a picker, sidecars and body-based routing ----------------------------------

PREFILLER: Final = b"x-prefiller-host-port"
"""Where a sidecar is to prefill; it connects there, so it is never taken from outside."""
ENCODERS: Final = b"x-encoder-hosts-ports"
"""Where a sidecar is to encode; never taken from outside."""
DATA_PARALLEL: Final = b"x-data-parallel-host-port"
"""Which rank of a pod is to serve; never taken from outside."""
KV_SOURCE: Final = b"x-kv-cache-source-host-port"
"""Where a pod is to fetch KV blocks from; never taken from outside."""
MODEL_NAME: Final = b"x-gateway-model-name"
"""What body-based routing read from the body, for route matching."""
BASE_MODEL_NAME: Final = b"x-gateway-base-model-name"
"""The base model of the adapter that the body names, for route matching."""
AI_GATEWAY_MODEL: Final = b"x-ai-eg-model"
"""Envoy AI Gateway's word for the model of the body."""
ORIGINAL_PATH: Final = (b"x-original-path", b"x-forwarded-path")
"""The path before a gateway rewrote it."""

# --- Conformance suites only --------------------------------------------------------------------

TEST_SELECTION: Final = b"test-epp-endpoint-selection"
"""The endpoints to pick from, before any metadata; honoured only where a setting says so."""
TEST_SERVED: Final = "x-conformance-test-served-endpoint"
"""On an answer: the served endpoint that the data plane reported; only where a setting says so."""

_MORE_CONTROLS: Final = frozenset(
    (*TTFT_SLO_MS, *TPOT_SLO_MS, KV_SOURCE, TEST_SELECTION, TEST_SERVED.encode(), SESSION_TOKEN)
)
"""Control headers outside the prefixes of `control_headers`."""


def is_control(name: bytes) -> bool:
    """Whether a request header steers pickers or sidecars, and so ends here: no client sets a destination."""
    return STRIPPED_LETTER in name or name.startswith(STRIPPED_PREFIXES) or name in _MORE_CONTROLS


def first_of(header: Callable[[bytes], bytes | None], names: tuple[bytes, ...]) -> bytes | None:
    """Return the value under the youngest name that is there."""
    for name in names:
        found = header(name)
        if found is not None:
            return found
    return None


def lookup(headers: Iterable[tuple[bytes, bytes]]) -> Callable[[bytes], bytes | None]:
    """Return a look-up of lower-case names; repeated lines are joined by `, ` (RFC 9110 5.3)."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        found[name] = found[name] + b", " + value if name in found else value
    return found.get
