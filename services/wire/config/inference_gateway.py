"""The kind `InferenceGateway`: one cluster's gateway, its pools, their models and how a pod is picked.

Everything that tier 1 needs to know of traffic stands here; processes and ports are settings, and
discovery says which pods exist. What is dangerous is said by `gateway_checks`; importing and
rendering other systems' documents are `gateway_import` and `render_envoy_gateway`.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from services.core.inference import ModelName
from services.core.models.objectives import ObjectiveTable
from services.core.models.rewrites import Rewrite, RewriteRule, Target
from services.core.models.routing import LearnedAdapter, ModelTable, PoolModels, ServedModel
from services.wire.config.field_types import Given, Kind, Many, PositiveMs
from services.wire.config.inference_api import (
    PRIORITY_INT32,
    CanonicalModel,
    LabelKey,
    LabelValue,
    MatchLabels,
    Namespace,
    ObjectName,
    PortNumber,
)
from services.wire.config.rules import Rule

MAX_POOLS: Final = 100
MAX_BODY_BYTES: Final = 256 << 20
"""The hard limit of a body, and the field's default."""

GatewayGuardrail = Literal[
    "auth-none",
    "jwt-without-audience",
    "selector-matches-nothing",
    "selector-overlap",
    "cross-namespace-selector",
    "model-on-two-pools",
    "external-load-balancer",
    "listener-without-tls",
]
"""Checks that are on by default and can be waived by name in the document."""

CLAIM_VALUES = Rule("claim-values", "must list 1 to 128 values", lambda values: 1 <= len(values) <= 128)
CLAIM_NAME = Rule("claim-name", "must be 1 to 253 characters", lambda text: 1 <= len(text) <= 253)
AUDIENCE_COUNT = Rule("audience-count", "must list at most 8 audiences", lambda values: len(values) <= 8)
CLAIM_COUNT = Rule("claim-count", "must list at most 16 claims", lambda values: len(values) <= 16)
ISSUER = Rule(
    "issuer",
    "must be 1 to 253 printable characters without spaces",
    lambda text: 1 <= len(text) <= 253 and text.isprintable() and " " not in text,
)
HTTPS_URI = Rule(
    "https-uri",
    "must be an https:// URI of at most 2048 visible ASCII characters",
    lambda text: (
        text.startswith("https://")
        and 8 < len(text) <= 2048
        and text.isascii()
        and text.isprintable()
        and " " not in text
    ),
)
WEIGHT = Rule("scorer-weight", "must lie in 0..100", lambda number: 0 <= number <= 100)
BODY_BYTES = Rule(
    "body-bytes-range", f"must lie in 1..{MAX_BODY_BYTES}", lambda size: 1 <= size <= MAX_BODY_BYTES
)

Weight = Annotated[int, AfterValidator(WEIGHT)]

SCORERS: Final[Mapping[str, str]] = {
    "queue": "queue-scorer",
    "kv_cache": "kv-cache-utilization-scorer",
    "prefix": "prefix-cache-scorer",
    "lru": "no-hit-lru-scorer",
    "lora_affinity": "lora-affinity-scorer",
    "running_requests": "running-requests-size-scorer",
    "predicted_latency": "latency-scorer",
}
"""The scorer that each weight is of, by the type names of `EndpointPickerConfig`."""


class GatewayMetadata(Kind):
    """Name and namespace; a document without a namespace means `default`, as `kubectl` does."""

    name: ObjectName
    namespace: Namespace = "default"
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class RequiredClaim(Kind):
    """A claim of which a token must hold one of the values: the claim itself, or an element of an array."""

    name: Annotated[str, AfterValidator(CLAIM_NAME)]
    value_type: Literal["String", "StringArray"] = "String"
    values: Annotated[Many[str], AfterValidator(CLAIM_VALUES)]


class Jwt(Kind):
    """Tokens of one issuer. A token must name an audience and hold every required claim."""

    name: ObjectName
    issuer: Annotated[str, AfterValidator(ISSUER)]
    jwks_uri: Annotated[str, AfterValidator(HTTPS_URI)]
    audiences: Annotated[Many[str], AfterValidator(AUDIENCE_COUNT)] = ()
    required_claims: Annotated[Many[RequiredClaim], AfterValidator(CLAIM_COUNT)] = ()


class GatewayAuth(Kind):
    """Who may ask. `jwt` is given exactly when the mode is `jwt`, which a cross check sees to."""

    mode: Literal["jwt", "none"]
    jwt: Annotated[Jwt | None, Given] = None


class ListenerTls(Kind):
    """TLS of a listener. Without `certificate` the platform issues one."""

    certificate: str = ""


class GatewayListener(Kind):
    """Where clients come in, and whether only this network reaches it."""

    name: ObjectName
    port: PortNumber = 443
    load_balancer: Literal["internal", "external"] = "internal"
    tls: Annotated[ListenerTls | None, Given] = None


class BodyRouting(Kind):
    """Whether the body's model chooses the pool. `defaultPool` takes models that no pool serves; without it: 404."""

    enabled: bool = True
    default_pool: Annotated[ObjectName | None, Given] = None
    max_body_bytes: Annotated[int, AfterValidator(BODY_BYTES)] = MAX_BODY_BYTES


class PickerService(Kind):
    """The Service through which gateways ask the picker, for rendering."""

    name: ObjectName = "gir-endpoint-picker"
    port: PortNumber = 9002
    failure_mode: Literal["FailOpen", "FailClose"] = "FailClose"


class GatewayModel(Kind):
    """A base model, other names that mean it, and the LoRA adapters that are asked for by name."""

    name: CanonicalModel
    aliases: Many[CanonicalModel] = ()
    adapters: Many[CanonicalModel] = ()

    def to_core(self) -> ServedModel:
        """Return the core value."""
        return ServedModel(
            ModelName(self.name),
            tuple(ModelName(name) for name in self.aliases),
            tuple(ModelName(name) for name in self.adapters),
        )


class ScorerWeights(Kind):
    """Weight of each scorer; 0 leaves it out."""

    queue: Weight = 2
    kv_cache: Weight = 2
    prefix: Weight = 3
    lru: Weight = 0
    lora_affinity: Weight = 0
    running_requests: Weight = 0
    predicted_latency: Weight = 0

    def by_scorer(self) -> Mapping[str, int]:
        """Return the weights above 0 by the scorer's type name."""
        return {scorer: weight for field, scorer in SCORERS.items() if (weight := getattr(self, field)) > 0}


class ConfigMapRef(Kind):
    """A ConfigMap that holds an `EndpointPickerConfig`."""

    name: ObjectName
    key: Annotated[str | None, Given] = None


class PoolScheduling(Kind):
    """How a pod is picked: a baseline by name, or scorers by weight. The names are SageMaker's."""

    strategy: Literal["SCORERS", "RANDOM", "ROUND_ROBIN", "LEAST_OUTSTANDING_REQUESTS", "PREFIX_AWARE"] = (
        "SCORERS"
    )
    weights: Annotated[ScorerWeights | None, Given] = None
    config_map_ref: Annotated[ConfigMapRef | None, Given] = None


class GatewayPool(Kind):
    """Pods that serve the same models."""

    name: ObjectName
    namespace: Annotated[Namespace | None, Given] = None
    selector: MatchLabels
    target_ports: Annotated[Many[PortNumber], Field(min_length=1, max_length=8)] = (8000,)
    app_protocol: Literal["http", "kubernetes.io/h2c"] = "http"
    engine: Annotated[Literal["vllm", "sglang"] | None, Given] = None
    models: Annotated[Many[GatewayModel], Field(min_length=1, max_length=1000)]
    scheduling: PoolScheduling = PoolScheduling()
    request_timeout_ms: Annotated[PositiveMs | None, Given] = None


class GatewayObjective(Kind):
    """A name that requests may give for their importance; below 0 they may be shed first."""

    name: ObjectName
    priority: Annotated[int, AfterValidator(PRIORITY_INT32)] = 0


class GatewayTarget(Kind):
    """A model that takes a share of the requests. Where only some targets have a weight, the others get none."""

    model: CanonicalModel
    weight: Annotated[int, Field(ge=0, le=1_000_000)] = 0


class GatewayRewriteRule(Kind):
    """Requests for any of `matches` (none: for any model) go to `targets`."""

    matches: Many[CanonicalModel] = ()
    targets: Annotated[Many[GatewayTarget], Field(min_length=1, max_length=100)]


class GatewayRewrite(Kind):
    """A canary or a split on one pool."""

    name: ObjectName
    pool: ObjectName
    rules: Annotated[Many[GatewayRewriteRule], Field(min_length=1, max_length=1000)]

    def to_core(self, place: int) -> Rewrite:
        """Return the core value; its place in the document stands for its age."""
        rules = tuple(
            RewriteRule(
                tuple(ModelName(name) for name in rule.matches),
                tuple(Target(ModelName(target.model), target.weight) for target in rule.targets),
            )
            for rule in self.rules
        )
        return Rewrite(self.name, self.pool, place, rules)


class InferenceGatewaySpec(Kind):
    """One gateway."""

    auth: GatewayAuth
    listeners: Annotated[Many[GatewayListener], Field(max_length=16)] = ()
    body_routing: BodyRouting = BodyRouting()
    picker: PickerService = PickerService()
    pools: Annotated[Many[GatewayPool], Field(min_length=1, max_length=MAX_POOLS)]
    objectives: Annotated[Many[GatewayObjective], Field(max_length=1000)] = ()
    rewrites: Annotated[Many[GatewayRewrite], Field(max_length=1000)] = ()
    namespace_grants: Many[Namespace] = ()
    waive: Many[GatewayGuardrail] = ()

    def model_table(
        self, learned: Iterable[LearnedAdapter] = (), rewrites: Iterable[Rewrite] = ()
    ) -> ModelTable:
        """Return the table of names; `rewrites` are those that a cluster holds beside the document's.

        Of several pools without body routing only the first is ever asked, under the name the client gave.
        """
        pools = [
            PoolModels(pool.name, tuple(model.to_core() for model in pool.models)) for pool in self.pools
        ]
        default = self.body_routing.default_pool if self.body_routing.enabled else self.pools[0].name
        own = [rewrite.to_core(place) for place, rewrite in enumerate(self.rewrites)]
        return ModelTable(pools, [*own, *rewrites], learned, default)

    def objective_table(self) -> ObjectiveTable:
        """Return the priorities by objective."""
        return ObjectiveTable({objective.name: objective.priority for objective in self.objectives})


class InferenceGateway(Kind):
    """A cluster's gateway."""

    api_version: Literal["gir.dev/v1alpha1"]
    kind: Literal["InferenceGateway"]
    metadata: GatewayMetadata
    spec: InferenceGatewaySpec
