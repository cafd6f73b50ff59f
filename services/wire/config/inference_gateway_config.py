"""`InferenceGatewayConfig` of SageMaker HyperPod (inference.sagemaker.aws.amazon.com/v1alpha1): fields, limits, rules.

Strict as the CRD is: an unknown field is refused, and what admission refuses is refused here, each
rule by name. What the fields mean for us is `gateway_import`.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, ValidationError

from services.wire.config.documents import Source
from services.wire.config.field_types import Given, Kind, Many
from services.wire.config.inference_api import (
    LABEL_KEY,
    LABEL_VALUE,
    MODEL_NAME,
    NAMESPACE,
    OBJECT_NAME,
    PORT_RANGE,
    SELECTOR_SIZE,
    CanonicalModel,
    Meta,
    ObjectName,
    PortNumber,
    Selector,
)
from services.wire.config.inference_gateway import (
    AUDIENCE_COUNT,
    BODY_BYTES,
    CLAIM_COUNT,
    CLAIM_NAME,
    CLAIM_VALUES,
    HTTPS_URI,
    ISSUER,
    MAX_BODY_BYTES,
    WEIGHT,
    ConfigMapRef,
    RequiredClaim,
    ScorerWeights,
)
from services.wire.config.problems import Problem, value_text
from services.wire.config.rules import Finding, Rule, findings
from services.wire.config.yaml_reader import YamlError, read_yaml

API_VERSION: Final = "inference.sagemaker.aws.amazon.com/v1alpha1"
KIND: Final = "InferenceGatewayConfig"

_ACM = re.compile(r"arn:aws[a-z-]*:acm:[a-z0-9-]+:[0-9]{12}:certificate/[A-Za-z0-9-]+\Z")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
_DURATION = re.compile(r"([0-9]{1,5}(h|ms|m|s)){1,4}\Z")
_PART = re.compile(r"([0-9]+)(h|ms|m|s)")
_UNIT_MS: Final = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
MAX_TIMEOUT_MS: Final = 3_600_000
"""A request lasts at most an hour here."""


def duration_ms(text: str) -> int:
    """Return a Gateway API duration (`1h30m`, `500ms`) in milliseconds; `text` must be one."""
    return sum(int(number) * _UNIT_MS[unit] for number, unit in _PART.findall(text))


def _shortest(text: str | None) -> str | None:
    return None if text is None else duration_text(duration_ms(text))


def duration_text(ms: int) -> str:
    """Return milliseconds as the shortest Gateway API duration."""
    parts = []
    for unit, size in _UNIT_MS.items():
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


SCHEDULER_COUNT = Rule(
    "scheduler-count", "must list 1 to 100 schedulers", lambda items: 1 <= len(items) <= 100
)
SCHEDULER_NAME = Rule(
    "scheduler-name", "must be a DNS label of at most 63 characters", lambda text: bool(_LABEL.match(text))
)
LORA_COUNT = Rule("lora-adapter-count", "must list at most 50 adapters", lambda items: len(items) <= 50)
REPLICAS = Rule("replicas", "must be at least 1", lambda number: number >= 1)
ACM_ARN = Rule("acm-arn", "must be the ARN of a certificate in ACM", lambda text: bool(_ACM.match(text)))
ROUTE_TIMEOUT = Rule(
    "route-timeout",
    "must be a duration such as 30s or 1m30s, above 0 and at most 1h",
    lambda text: bool(_DURATION.match(text)) and 0 < duration_ms(text) <= MAX_TIMEOUT_MS,
)
VALUE_RULES: Final = (
    SCHEDULER_COUNT,
    SCHEDULER_NAME,
    LORA_COUNT,
    REPLICAS,
    ACM_ARN,
    ROUTE_TIMEOUT,
    AUDIENCE_COUNT,
    CLAIM_COUNT,
    CLAIM_NAME,
    CLAIM_VALUES,
    ISSUER,
    HTTPS_URI,
    BODY_BYTES,
    WEIGHT,
    MODEL_NAME,
    PORT_RANGE,
    SELECTOR_SIZE,
    LABEL_KEY,
    LABEL_VALUE,
    OBJECT_NAME,
    NAMESPACE,
)
"""Rules of one value each."""


class BodyBasedRouter(Kind):
    """Whether the body's model chooses the scheduler; `defaultBackend` is the scheduler for unknown models."""

    enabled: bool = False
    replicas: Annotated[int, AfterValidator(REPLICAS)] = 2
    default_backend: Annotated[str | None, Given] = None
    max_request_body_bytes: Annotated[int, AfterValidator(BODY_BYTES)] = MAX_BODY_BYTES


class Tls(Kind):
    """TLS of the gateway; empty means a certificate issued by the controller."""

    acm_arn: Annotated[str | None, Given, AfterValidator(ACM_ARN.if_given)] = None


class RemoteJwks(Kind):
    """Where the issuer's keys are."""

    uri: Annotated[str, AfterValidator(HTTPS_URI)]


class JwtProvider(Kind):
    """Tokens that the gateway takes."""

    name: ObjectName
    issuer: Annotated[str, AfterValidator(ISSUER)]
    remote_jwks: Annotated[RemoteJwks, Field(alias="remoteJWKS")]
    audiences: Annotated[Many[str], AfterValidator(AUDIENCE_COUNT)] = ()
    required_claims: Annotated[Many[RequiredClaim], AfterValidator(CLAIM_COUNT)] = ()


class JwtAuth(Kind):
    """The one provider."""

    provider: JwtProvider


class Auth(Kind):
    """Without it the gateway takes every request."""

    jwt: JwtAuth


class Metrics(Kind):
    """Whether metrics are collected."""

    enabled: bool


class Observability(Kind):
    """What is collected."""

    metrics: Metrics


class Scheduler(Kind):
    """One model: its pods, and the endpoint picker that chooses among them."""

    name: Annotated[str, AfterValidator(SCHEDULER_NAME)]
    model_selector: Selector
    model_name: CanonicalModel
    target_port: PortNumber = 8000
    app_protocol: Literal["http", "kubernetes.io/h2c"] = "http"
    scheduler: Literal["llm-d", "epp"] = "llm-d"
    engine_type: Annotated[Literal["vllm", "sglang"] | None, Given] = None
    weights: Annotated[ScorerWeights | None, Given] = None
    config_map_ref: Annotated[ConfigMapRef | None, Given] = None
    replicas: Annotated[int, AfterValidator(REPLICAS)] = 2
    lora_adapters: Annotated[Many[CanonicalModel], AfterValidator(LORA_COUNT)] = ()
    route_timeout: Annotated[
        str | None, Given, AfterValidator(ROUTE_TIMEOUT.if_given), AfterValidator(_shortest)
    ] = None


class InferenceGatewayConfigSpec(Kind):
    """One gateway."""

    bbr: BodyBasedRouter = BodyBasedRouter()
    tls: Tls
    auth: Annotated[Auth | None, Given] = None
    observability: Annotated[Observability | None, Given] = None
    schedulers: Annotated[Many[Scheduler], AfterValidator(SCHEDULER_COUNT)]


class InferenceGatewayConfig(Kind):
    """A gateway of the HyperPod Inference Gateway. `status` is the controller's and is not read."""

    api_version: Literal["inference.sagemaker.aws.amazon.com/v1alpha1"]
    kind: Literal["InferenceGatewayConfig"]
    metadata: Meta
    spec: InferenceGatewayConfigSpec
    status: dict[str, Any] | None = None


Broken = Iterator[tuple[str, object]]


@dataclass(frozen=True, slots=True)
class SpecRule:
    """A rule that looks at several fields: `broken` yields the path and value of each place that breaks it."""

    name: str
    clause: str
    broken: Callable[[InferenceGatewayConfigSpec], Broken]

    def __str__(self) -> str:
        """Return `name: clause`."""
        return f"{self.name}: {self.clause}"


def _second_names(spec: InferenceGatewayConfigSpec) -> Broken:
    seen: set[str] = set()
    for i, scheduler in enumerate(spec.schedulers):
        if scheduler.name in seen:
            yield f"spec.schedulers[{i}].name", scheduler.name
        seen.add(scheduler.name)


def _second_models(spec: InferenceGatewayConfigSpec) -> Broken:
    seen: set[str] = set()
    for i, scheduler in enumerate(spec.schedulers):
        names = [(f"spec.schedulers[{i}].modelName", scheduler.model_name)]
        names += [
            (f"spec.schedulers[{i}].loraAdapters[{j}]", a) for j, a in enumerate(scheduler.lora_adapters)
        ]
        for path, name in names:
            if name in seen:
                yield path, name
            seen.add(name)


def _unrouted(spec: InferenceGatewayConfigSpec) -> Broken:
    if len(spec.schedulers) > 1 and not spec.bbr.enabled:
        yield "spec.bbr.enabled", False


def _lost_default(spec: InferenceGatewayConfigSpec) -> Broken:
    default = spec.bbr.default_backend
    if default is not None and default not in {scheduler.name for scheduler in spec.schedulers}:
        yield "spec.bbr.defaultBackend", default


def _wide_tokens(spec: InferenceGatewayConfigSpec) -> Broken:
    if spec.auth is not None:
        provider = spec.auth.jwt.provider
        if not provider.audiences and not provider.required_claims:
            yield "spec.auth.jwt.provider.audiences", provider.audiences


def _two_configurations(spec: InferenceGatewayConfigSpec) -> Broken:
    for i, scheduler in enumerate(spec.schedulers):
        if scheduler.weights is not None and scheduler.config_map_ref is not None:
            yield f"spec.schedulers[{i}].configMapRef", scheduler.config_map_ref.name


def _foreign_lru(spec: InferenceGatewayConfigSpec) -> Broken:
    for i, scheduler in enumerate(spec.schedulers):
        if scheduler.scheduler != "llm-d" and scheduler.weights is not None and scheduler.weights.lru:
            yield f"spec.schedulers[{i}].weights.lru", scheduler.weights.lru


SPEC_RULES: Final = (
    SpecRule("scheduler-names-unique", "names a second scheduler", _second_names),
    SpecRule("model-names-unique", "is already a model or an adapter of this gateway", _second_models),
    SpecRule("bbr-required", "must be true with more than one scheduler", _unrouted),
    SpecRule("default-backend", "is the name of no scheduler", _lost_default),
    SpecRule("jwt-narrows", "must hold an audience where no claim is required", _wide_tokens),
    SpecRule(
        "weights-or-config-map", "excludes weights; a scheduler takes one of the two", _two_configurations
    ),
    SpecRule("lru-needs-llm-d", "must be 0 unless the scheduler is llm-d", _foreign_lru),
)
"""Rules of several fields together."""


@dataclass(frozen=True, slots=True)
class ReadConfigs:
    """The sound documents of a file with their places in it, and what is wrong with the others."""

    configs: tuple[tuple[int, InferenceGatewayConfig], ...]
    problems: tuple[Problem, ...]


def read_gateway_configs(source: Source) -> ReadConfigs:
    """Return every `InferenceGatewayConfig` of a YAML file; whatever else stands there is a problem."""
    configs: list[tuple[int, InferenceGatewayConfig]] = []
    problems: list[Problem] = []
    try:
        trees = read_yaml(source.data)
    except YamlError as error:
        place = f"line {error.line} column {error.column}"
        return ReadConfigs((), (Problem(source.name, 0, place, "(text)", error.rule),))
    present = [(document, tree) for document, tree in enumerate(trees) if tree is not None]
    if not present:
        problems.append(Problem(source.name, 0, "(document)", "(empty)", "holds no document"))
    for document, tree in present:
        found = read_gateway_config(tree)
        if isinstance(found, InferenceGatewayConfig):
            configs.append((document, found))
        else:
            problems += [Problem(source.name, document, each.path, each.value, each.rule) for each in found]
    return ReadConfigs(tuple(configs), tuple(problems))


def read_gateway_config(tree: object) -> InferenceGatewayConfig | tuple[Finding, ...]:
    """Return the document that `tree` (plain values of YAML or JSON) is, or every rule that it breaks."""
    if not isinstance(tree, dict):
        return (Finding("(document)", value_text(tree), "must be a mapping"),)
    for field, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if tree.get(field) != wanted:
            return (Finding(field, value_text(tree.get(field)), f"must be {wanted}"),)
    try:
        config = InferenceGatewayConfig.model_validate(tree, by_alias=True, by_name=False)
    except ValidationError as error:
        return tuple(findings(error))
    broken = tuple(
        Finding(path, value_text(value), str(rule))
        for rule in SPEC_RULES
        for path, value in rule.broken(config.spec)
    )
    return broken or config
