"""The Gateway API Inference Extension's objects: `InferencePool`, `InferenceObjective`, `InferenceModelRewrite`.

The schemas of `inference.networking.k8s.io/v1` and of `v1alpha2` in both its groups (`llm-d.ai` and
the older `inference.networking.x-k8s.io`), with the rules that a cluster enforces by CEL as named
checks. Files and the Kubernetes adapter read the same objects here; no API call is made here.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from services.core.inference import ModelName
from services.core.models.names import MAX_MODEL_NAME_CHARS, is_model_name
from services.core.models.rewrites import Rewrite, Target
from services.core.models.rewrites import RewriteRule as CoreRule
from services.core.units import WallMs
from services.wire.config.field_types import Given, Kind, Many
from services.wire.config.problems import value_text
from services.wire.config.rules import Finding, Rule, findings

POOL_API_VERSION: Final = "inference.networking.k8s.io/v1"
OBJECTIVE_API_VERSIONS: Final = ("llm-d.ai/v1alpha2", "inference.networking.x-k8s.io/v1alpha2")
DEFAULT_PICKER_PORT: Final = 9002
MAX_OBJECT_NAME: Final = 253

_DNS = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_OBJECT_NAME = re.compile(rf"{_DNS}\Z")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
_GROUP = re.compile(rf"({_DNS})?\Z")
_KIND = re.compile(r"[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?\Z")
_LABEL_KEY = re.compile(rf"({_DNS}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?\Z")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?\Z")
_INT32 = 1 << 31


def _timestamp(value: str) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


OBJECT_NAME = Rule(
    "object-name",
    f"must be a DNS subdomain of at most {MAX_OBJECT_NAME} characters",
    lambda text: len(text) <= MAX_OBJECT_NAME and _OBJECT_NAME.match(text) is not None,
)
NAMESPACE = Rule(
    "namespace", "must be a DNS label of at most 63 characters", lambda text: bool(_NAMESPACE.match(text))
)
TIMESTAMP = Rule("timestamp", "must be an RFC 3339 time with its offset", _timestamp)
GROUP = Rule(
    "group",
    "must be empty or a DNS subdomain of at most 253 characters",
    lambda text: len(text) <= MAX_OBJECT_NAME and _GROUP.match(text) is not None,
)
KIND_NAME = Rule(
    "kind-name",
    "must be 1 to 63 letters, digits and '-', beginning with a letter",
    lambda text: len(text) <= 63 and _KIND.match(text) is not None,
)
LABEL_KEY = Rule(
    "label-key",
    "must be a label key: [prefix/]name, the name at most 63 characters",
    lambda text: len(text) <= MAX_OBJECT_NAME and _LABEL_KEY.match(text) is not None,
)
LABEL_VALUE = Rule(
    "label-value", "must be a label value: at most 63 characters", lambda text: bool(_LABEL_VALUE.match(text))
)
SELECTOR_SIZE = Rule("selector-size", "must hold 1 to 64 labels", lambda labels: 1 <= len(labels) <= 64)
PORT_RANGE = Rule("port-range", "must lie in 1..65535", lambda number: 1 <= number <= 65535)
TARGET_PORT_COUNT = Rule("target-port-count", "must list 1 to 8 ports", lambda ports: 1 <= len(ports) <= 8)
TARGET_PORTS_UNIQUE = Rule(
    "target-ports-unique",
    "must not list a port number twice",
    lambda ports: len({port.number for port in ports}) == len(ports),
)
PICKER_PORT_REQUIRED = Rule(
    "picker-port-required",
    "needs a port when the kind is Service",
    lambda ref: ref.kind != "Service" or ref.port is not None,
)
PRIORITY_INT32 = Rule(
    "priority-int32", "must fit 32 bits with a sign", lambda number: -_INT32 <= number < _INT32
)
MATCH_VALUE = Rule("match-value", "must not be empty", bool)
MODEL_NAME = Rule(
    "model-name", f"must be 1 to {MAX_MODEL_NAME_CHARS} printable characters without spaces", is_model_name
)
WEIGHT_RANGE = Rule("weight-range", "must lie in 1..1000000", lambda number: 1 <= number <= 1_000_000)
TARGETS_NOT_EMPTY = Rule("targets-not-empty", "must list at least one target", bool)

INFERENCE_RULES: Final = (
    OBJECT_NAME,
    NAMESPACE,
    TIMESTAMP,
    GROUP,
    KIND_NAME,
    LABEL_KEY,
    LABEL_VALUE,
    SELECTOR_SIZE,
    PORT_RANGE,
    TARGET_PORT_COUNT,
    TARGET_PORTS_UNIQUE,
    PICKER_PORT_REQUIRED,
    PRIORITY_INT32,
    MATCH_VALUE,
    MODEL_NAME,
    WEIGHT_RANGE,
    TARGETS_NOT_EMPTY,
)
"""Every named rule of these objects; what is of the wrong type, missing or unknown has no name."""

ObjectName = Annotated[str, AfterValidator(OBJECT_NAME)]
Namespace = Annotated[str, AfterValidator(NAMESPACE)]
Group = Annotated[str, AfterValidator(GROUP)]
KindName = Annotated[str, AfterValidator(KIND_NAME)]
LabelKey = Annotated[str, AfterValidator(LABEL_KEY)]
LabelValue = Annotated[str, AfterValidator(LABEL_VALUE)]
MatchLabels = Annotated[dict[LabelKey, LabelValue], AfterValidator(SELECTOR_SIZE)]
PortNumber = Annotated[int, AfterValidator(PORT_RANGE)]
CanonicalModel = Annotated[str, AfterValidator(MODEL_NAME)]

_SERVER_SET: Final = frozenset(
    (
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    )
)
_READ: Final = frozenset(("creationTimestamp", "generation", "resourceVersion", "uid"))


def _without_server_set(value: Any) -> Any:
    """Leave out what an API server adds and nobody here reads, so that the rest can be checked for spelling."""
    if not isinstance(value, dict):
        return value
    return {name: item for name, item in value.items() if name not in _SERVER_SET or name in _READ}


class ObjectMeta(Kind):
    """`metadata` of a Kubernetes object. A file without a namespace means `default`, as `kubectl` does."""

    name: ObjectName
    namespace: Namespace = "default"
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    creation_timestamp: Annotated[str | None, AfterValidator(TIMESTAMP.if_given)] = None
    generation: int = 0
    resource_version: str = ""
    uid: str = ""

    @property
    def created_at_ms(self) -> WallMs:
        """Wall time of creation in milliseconds, 0 for an object that no server has seen."""
        if self.creation_timestamp is None:
            return WallMs(0)
        return WallMs(round(datetime.fromisoformat(self.creation_timestamp).timestamp() * 1000))


Meta = Annotated[ObjectMeta, BeforeValidator(_without_server_set)]


class Selector(Kind):
    """Pods of the pool, by labels, in the pool's own namespace."""

    match_labels: MatchLabels


class Port(Kind):
    """A port by number."""

    number: PortNumber


class EndpointPickerRef(Kind):
    """The picker that a gateway asks for this pool. `FailOpen` lets the gateway choose when it does not answer."""

    group: Group = ""
    kind: KindName = "Service"
    name: ObjectName
    port: Annotated[Port | None, Given] = None
    failure_mode: Literal["FailOpen", "FailClose"] = "FailClose"

    @model_validator(mode="after")
    def _port_of_service(self) -> Self:
        PICKER_PORT_REQUIRED(self)
        return self


class InferencePoolSpec(Kind):
    """Pods, ports and picker of one pool."""

    selector: Selector
    target_ports: Annotated[
        Many[Port], AfterValidator(TARGET_PORT_COUNT), AfterValidator(TARGET_PORTS_UNIQUE)
    ]
    app_protocol: Literal["http", "kubernetes.io/h2c"] = "http"
    endpoint_picker_ref: Annotated[EndpointPickerRef | None, Given] = None


class InferencePool(Kind):
    """A pool of model servers that serve the same models. `status` is the gateways' and is not read."""

    api_version: Literal["inference.networking.k8s.io/v1"]
    kind: Literal["InferencePool"]
    metadata: Meta
    spec: InferencePoolSpec
    status: dict[str, Any] | None = None


class PoolRef(Kind):
    """The pool an objective or a rewrite belongs to, in the same namespace."""

    group: Group = "inference.networking.k8s.io"
    kind: KindName = "InferencePool"
    name: ObjectName


class InferenceObjectiveSpec(Kind):
    """Importance of the requests that name the objective: unset is 0, below 0 may be shed first."""

    priority: Annotated[int | None, AfterValidator(PRIORITY_INT32.if_given)] = None
    pool_ref: PoolRef


class InferenceObjective(Kind):
    """How important requests are against others of the same pool."""

    api_version: Literal["llm-d.ai/v1alpha2", "inference.networking.x-k8s.io/v1alpha2"]
    kind: Literal["InferenceObjective"]
    metadata: Meta
    spec: InferenceObjectiveSpec
    status: dict[str, Any] | None = None

    @property
    def priority(self) -> int:
        """The priority in force."""
        return self.spec.priority or 0


class ModelMatch(Kind):
    """A model name as the request gives it."""

    type: Literal["Exact"] = "Exact"
    value: Annotated[str, AfterValidator(MATCH_VALUE)]


class Match(Kind):
    """One way to match."""

    model: ModelMatch


class TargetModel(Kind):
    """A model that takes a share of the requests; see `services.core.models.rewrites` for the shares."""

    weight: Annotated[int | None, AfterValidator(WEIGHT_RANGE.if_given)] = None
    model_rewrite: CanonicalModel


class RewriteRule(Kind):
    """Requests that match any of `matches` (none: every request) go to the targets by weight."""

    matches: Many[Match] = ()
    targets: Annotated[Many[TargetModel] | None, Given, AfterValidator(TARGETS_NOT_EMPTY.if_given)] = None

    def to_core(self) -> CoreRule:
        """Return the core value."""
        return CoreRule(
            tuple(ModelName(match.model.value) for match in self.matches),
            tuple(Target(ModelName(each.model_rewrite), each.weight or 0) for each in self.targets or ()),
        )


class InferenceModelRewriteSpec(Kind):
    """Rules in order."""

    pool_ref: PoolRef
    rules: Many[RewriteRule]


class InferenceModelRewrite(Kind):
    """Which model serves a request of a given name: canaries and splits."""

    api_version: Literal["llm-d.ai/v1alpha2", "inference.networking.x-k8s.io/v1alpha2"]
    kind: Literal["InferenceModelRewrite"]
    metadata: Meta
    spec: InferenceModelRewriteSpec
    status: dict[str, Any] | None = None

    def to_core(self) -> Rewrite:
        """Return the core value."""
        return Rewrite(
            self.metadata.name,
            self.spec.pool_ref.name,
            self.metadata.created_at_ms,
            tuple(rule.to_core() for rule in self.spec.rules),
        )


InferenceObject = InferencePool | InferenceObjective | InferenceModelRewrite

_KINDS: Final[Mapping[tuple[str, str], type[InferenceObject]]] = {
    (POOL_API_VERSION, "InferencePool"): InferencePool,
    **{(version, "InferenceObjective"): InferenceObjective for version in OBJECTIVE_API_VERSIONS},
    **{(version, "InferenceModelRewrite"): InferenceModelRewrite for version in OBJECTIVE_API_VERSIONS},
}


class BrokenObjectError(ValueError):
    """An object that does not keep its schema's rules; `findings` says where and why."""

    def __init__(self, broken: tuple[Finding, ...]) -> None:
        super().__init__("; ".join(str(finding) for finding in broken))
        self.findings = broken


def read_inference_object(tree: object, *, prune: bool) -> InferenceObject:
    """Return the object that `tree` (plain values of YAML or JSON) is; raises `BrokenObjectError`.

    `prune` leaves unknown fields out, as an API server does and as a reader of a newer server's
    objects must; a file is read without it, so that a misspelt field is refused.
    """
    if not isinstance(tree, Mapping):
        raise BrokenObjectError((Finding("(document)", value_text(tree), "must be a mapping"),))
    version, name = tree.get("apiVersion"), tree.get("kind")
    kind = _KINDS.get((version, name)) if isinstance(version, str) and isinstance(name, str) else None
    if kind is None:
        known = ", ".join(f"{version} {name}" for version, name in _KINDS)
        raise BrokenObjectError(
            (Finding("kind", value_text(f"{version} {name}"), f"must be one of {known}"),)
        )
    try:
        return kind.model_validate(tree, by_alias=True, by_name=False, extra="ignore" if prune else "forbid")
    except ValidationError as error:
        raise BrokenObjectError(tuple(findings(error))) from None
