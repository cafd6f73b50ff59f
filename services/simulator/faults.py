"""Fault knobs of a pod: what they are, how an update is checked, and which requests an injection hits.

Values and pure functions; the server acts on them. An update is partial, checked as a whole and either
taken or refused with every mistake named, because a typo that silently injects nothing makes a chaos run
pass for the wrong reason. Names follow the knobs of llm-d's inference simulator where it has them; hyphens
and underscores are both read.
"""

import enum
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TypeVar

from services.core.units import ms
from services.simulator.engine import Slowdown
from services.simulator.tokens import stable_hash

_E = TypeVar("_E", bound=enum.Enum)

EXTRA_TTFT_MS_MAX = 600_000.0
INTER_TOKEN_FACTOR_MAX = 1_000.0


class FailureType(enum.Enum):
    """A kind of failed answer: name, HTTP status, OpenAI error type, message."""

    RATE_LIMIT = ("rate_limit", 429, "RateLimitError", "Rate limit reached (injected).")
    INVALID_API_KEY = (
        "invalid_api_key",
        401,
        "AuthenticationError",
        "Incorrect API key provided (injected).",
    )
    CONTEXT_LENGTH = ("context_length", 400, "BadRequestError", "Maximum context length exceeded (injected).")
    SERVER_ERROR = ("server_error", 503, "ServiceUnavailableError", "The server is overloaded (injected).")
    INVALID_REQUEST = ("invalid_request", 400, "BadRequestError", "Invalid request (injected).")
    MODEL_NOT_FOUND = ("model_not_found", 404, "NotFoundError", "The model does not exist (injected).")

    def __init__(self, label: str, status: int, error_type: str, message: str) -> None:
        self.label = label
        self.status = status
        self.error_type = error_type
        self.message = message


class MetricsFault(enum.Enum):
    """What is wrong with the metrics page."""

    NONE = "none"
    HANG = "hang"
    FROZEN = "frozen"
    NAN = "nan"
    MISSING_KV = "missing_kv"
    ZERO = "zero"
    OLD_NAMES = "old_names"


class ProbeFault(enum.Enum):
    """How health probes are treated."""

    NONE = "none"
    HANG = "hang"
    FAIL = "fail"


class KvEventsFault(enum.Enum):
    """What is wrong with KV events: `lose` numbers batches and keeps them for replay, but sends none."""

    NONE = "none"
    LOSE = "lose"


class Crash(enum.Enum):
    """How a pod goes down at once: the process ends, or every socket is reset."""

    EXIT = "exit"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class Faults:
    """Every knob with its harmless value.

    `extra_ttft_ms` is added before a request may be scheduled; `inter_token_factor` stretches decoding;
    `failure_injection_rate` is the percentage of requests answered with one of `failure_types`; `hang`
    accepts inference requests and never answers them.
    """

    extra_ttft_ms: float = 0.0
    inter_token_factor: float = 1.0
    failure_injection_rate: float = 0.0
    failure_types: tuple[FailureType, ...] = tuple(FailureType)
    hang: bool = False
    metrics: MetricsFault = MetricsFault.NONE
    probes: ProbeFault = ProbeFault.NONE
    kv_events: KvEventsFault = KvEventsFault.NONE

    def slowdown(self) -> Slowdown:
        """Return the part of the knobs that the engine acts on."""
        return Slowdown(ms(self.extra_ttft_ms), self.inter_token_factor)

    def injected(self, pod: str, request_id: str) -> FailureType | None:
        """Return the failure `request_id` meets at `pod`, or None.

        A hash of both decides, so a repeat fails alike while a retry elsewhere may pass.
        """
        if self.failure_injection_rate <= 0:
            return None
        draw = stable_hash("failure", pod, request_id)
        # Basis points of a percent, so that a rate of 0.01 still hits one request in ten thousand.
        if draw % 10_000 >= self.failure_injection_rate * 100:
            return None
        return self.failure_types[draw // 10_000 % len(self.failure_types)]

    def document(self) -> dict[str, object]:
        """Return the knobs as the JSON document that `updated` reads."""
        values: dict[str, object] = asdict(self)
        values["failure_types"] = [kind.label for kind in self.failure_types]
        values["metrics"] = self.metrics.value
        values["probes"] = self.probes.value
        values["kv_events"] = self.kv_events.value
        return values


def updated(faults: Faults, change: Mapping[str, object]) -> Faults:
    """Return `faults` with the named knobs replaced. Raises ValueError that names every mistake."""
    values: dict[str, object] = {}
    mistakes = []
    for key, value in change.items():
        name = key.replace("-", "_")
        try:
            values[name] = _read(name, value)
        except ValueError as error:
            mistakes.append(str(error))
    if mistakes:
        raise ValueError("; ".join(mistakes))
    # Each value was read for the field of its name just above, which a type checker cannot follow.
    return replace(faults, **values)  # type: ignore[arg-type]


def _read(name: str, value: object) -> object:
    match name:
        case "extra_ttft_ms":
            return _number(name, value, 0.0, EXTRA_TTFT_MS_MAX)
        case "inter_token_factor":
            return _number(name, value, 0.01, INTER_TOKEN_FACTOR_MAX)
        case "failure_injection_rate":
            return _number(name, value, 0.0, 100.0)
        case "failure_types":
            return _failure_types(value)
        case "hang":
            return _flag(name, value)
        case "metrics":
            return _word(name, value, MetricsFault)
        case "probes":
            return _word(name, value, ProbeFault)
        case "kv_events":
            return _word(name, value, KvEventsFault)
        case _:
            known = ", ".join(Faults.__dataclass_fields__)
            raise ValueError(f"{name}: no such knob; known are {known}")


def _flag(name: str, value: object) -> bool:
    if value is True or value is False:
        return value
    raise ValueError(f"{name}: expected true or false, not {value!r}")


def _number(name: str, value: object, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name}: expected a number, not {value!r}")
    if not low <= value <= high:
        raise ValueError(f"{name}: expected {low:g} to {high:g}, not {value:g}")
    return float(value)


def _word(name: str, value: object, words: type[_E]) -> _E:
    for word in words:
        if word.value == value:
            return word
    raise ValueError(f"{name}: expected one of {', '.join(str(word.value) for word in words)}, not {value!r}")


def _failure_types(value: object) -> tuple[FailureType, ...]:
    by_label = {kind.label: kind for kind in FailureType}
    if not isinstance(value, list) or not by_label.keys() >= {*map(str, value)}:
        raise ValueError(f"failure_types: expected a list of {', '.join(by_label)}, not {value!r}")
    # llm-d's simulator reads an empty list as every type.
    return tuple(by_label[label] for label in value) or tuple(FailureType)
