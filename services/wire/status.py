"""The one table from a reason to gRPC code, HTTP status and OpenAI error.

Every `DropReason` and every `DoorReason` has exactly one row; a test fails when one is
missing. 429 means back-pressure (capacity exists but is contended), 503 means nobody can
serve now; the two are never confused. gRPC codes are numbers, so that no gRPC import is needed.
"""

import enum
from dataclasses import dataclass

from services.core.outcomes import DropReason

GRPC_INVALID_ARGUMENT = 3
GRPC_DEADLINE_EXCEEDED = 4
GRPC_NOT_FOUND = 5
GRPC_PERMISSION_DENIED = 7
GRPC_RESOURCE_EXHAUSTED = 8
GRPC_FAILED_PRECONDITION = 9
GRPC_UNIMPLEMENTED = 12
GRPC_INTERNAL = 13
GRPC_UNAVAILABLE = 14
GRPC_UNAUTHENTICATED = 16


class DoorReason(enum.Enum):
    """Why a door refuses a request before a decision is asked for."""

    INVALID_JSON = "invalid_json"
    INVALID_VALUE = "invalid_value"
    MISSING_PARAMETER = "missing_required_parameter"
    UNSUPPORTED_ENCODING = "unsupported_content_encoding"
    BODY_TOO_LARGE = "request_too_large"
    UNKNOWN_PATH = "unknown_url"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    UNAUTHENTICATED = "invalid_api_key"
    HAND_OFF_REFUSED = "hand_off_refused"
    NOT_READY = "not_ready"
    INTERNAL = "internal_error"


@dataclass(frozen=True, slots=True)
class StatusRow:
    """How one reason looks on each wire. `should_retry` is None where the status alone says it.

    `dropped` is the word of `x-llm-d-request-dropped-reason` (llm-d router), empty where the field has none.
    """

    http: int
    grpc: int
    type: str
    code: str
    should_retry: bool | None = None
    dropped: str = ""


_INVALID = "invalid_request_error"

STATUS: dict[DropReason | DoorReason, StatusRow] = {
    DropReason.MODEL_NOT_FOUND: StatusRow(404, GRPC_NOT_FOUND, _INVALID, "model_not_found", False),
    DropReason.JURISDICTION_DENIED: StatusRow(
        403, GRPC_PERMISSION_DENIED, _INVALID, "jurisdiction_denied", False
    ),
    DropReason.RESIDENCY_UNSATISFIABLE: StatusRow(
        503, GRPC_FAILED_PRECONDITION, "server_error", "residency_unsatisfiable", False
    ),
    DropReason.NO_HEALTHY_CLUSTER: StatusRow(
        503, GRPC_UNAVAILABLE, "server_error", "no_healthy_cluster", dropped="rejected-no-endpoints"
    ),
    DropReason.DRAINED: StatusRow(
        503, GRPC_UNAVAILABLE, "server_error", "drained", dropped="rejected-shutting-down"
    ),
    DropReason.REPORT_POLICY_MISMATCH: StatusRow(
        503, GRPC_UNAVAILABLE, "server_error", "report_policy_mismatch"
    ),
    DropReason.ATTEMPTS_EXHAUSTED: StatusRow(503, GRPC_UNAVAILABLE, "server_error", "attempts_exhausted"),
    DropReason.SATURATED: StatusRow(
        429, GRPC_RESOURCE_EXHAUSTED, "requests", "saturated", dropped="rejected-saturated"
    ),
    DropReason.CONTEXT_TOO_LONG: StatusRow(
        400, GRPC_INVALID_ARGUMENT, _INVALID, "context_length_exceeded", False
    ),
    DropReason.DEADLINE_EXCEEDED: StatusRow(504, GRPC_DEADLINE_EXCEEDED, "server_error", "deadline_exceeded"),
    DropReason.NO_ENDPOINTS: StatusRow(
        503, GRPC_UNAVAILABLE, "server_error", "no_endpoints", dropped="rejected-no-endpoints"
    ),
    DropReason.QUEUE_FULL: StatusRow(
        429, GRPC_RESOURCE_EXHAUSTED, "requests", "queue_full", dropped="rejected-saturated"
    ),
    DropReason.QUEUED_TOO_LONG: StatusRow(
        429, GRPC_RESOURCE_EXHAUSTED, "requests", "queued_too_long", dropped="rejected-ttl-expired"
    ),
    DropReason.EVICTED: StatusRow(429, GRPC_RESOURCE_EXHAUSTED, "requests", "evicted", dropped="evicted"),
    DropReason.SHUTTING_DOWN: StatusRow(
        503, GRPC_UNAVAILABLE, "server_error", "shutting_down", dropped="rejected-shutting-down"
    ),
    DropReason.CANCELLED: StatusRow(
        503, GRPC_UNAVAILABLE, "server_error", "cancelled", dropped="rejected-context-cancelled"
    ),
    DropReason.CACHE_MISS: StatusRow(412, GRPC_FAILED_PRECONDITION, _INVALID, "cache_miss", False),
    DoorReason.INVALID_JSON: StatusRow(400, GRPC_INVALID_ARGUMENT, _INVALID, "invalid_json", False),
    DoorReason.INVALID_VALUE: StatusRow(400, GRPC_INVALID_ARGUMENT, _INVALID, "invalid_value", False),
    DoorReason.MISSING_PARAMETER: StatusRow(
        400, GRPC_INVALID_ARGUMENT, _INVALID, "missing_required_parameter", False
    ),
    DoorReason.UNSUPPORTED_ENCODING: StatusRow(
        415, GRPC_INVALID_ARGUMENT, _INVALID, "unsupported_content_encoding", False
    ),
    DoorReason.BODY_TOO_LARGE: StatusRow(413, GRPC_INVALID_ARGUMENT, _INVALID, "request_too_large", False),
    DoorReason.UNKNOWN_PATH: StatusRow(404, GRPC_UNIMPLEMENTED, _INVALID, "unknown_url", False),
    DoorReason.METHOD_NOT_ALLOWED: StatusRow(405, GRPC_UNIMPLEMENTED, _INVALID, "method_not_allowed", False),
    DoorReason.UNAUTHENTICATED: StatusRow(401, GRPC_UNAUTHENTICATED, _INVALID, "invalid_api_key", False),
    DoorReason.HAND_OFF_REFUSED: StatusRow(401, GRPC_UNAUTHENTICATED, _INVALID, "hand_off_refused", False),
    DoorReason.NOT_READY: StatusRow(503, GRPC_UNAVAILABLE, "server_error", "not_ready"),
    DoorReason.INTERNAL: StatusRow(500, GRPC_INTERNAL, "server_error", "internal_error"),
}
