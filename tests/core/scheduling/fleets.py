"""Fleets for the scheduling tests: small builders, every field that matters named by the test."""

from collections.abc import Iterable, Mapping

from services.core.fleet import Candidate, FleetSnapshot, HealthState, LoadReport
from services.core.inference import Grants, InferenceRequest, ModelName, RequestId, Tenant, TenantId
from services.core.locality import Jurisdiction, Locality, Region
from services.core.policy import ModelPolicy, PolicySnapshot, RoutingPolicy
from services.core.residency import ANYWHERE, ResidencyRule
from services.core.scheduling.prepare import Prepared, prepare
from services.core.scheduling.profile import CLUSTERS, SchedulingProfile
from services.core.units import Instant, WallMs

MODEL = ModelName("llama")
ALIAS = ModelName("chat")
OTHER_MODEL = ModelName("mistral")
NOW = Instant(10**15)

EU_WEST = Locality(Region("eu-west"), Jurisdiction("eu"))
EU_NORTH = Locality(Region("eu-north"), Jurisdiction("eu"))
US_EAST = Locality(Region("us-east"), Jurisdiction("us"))
AP_SOUTH = Locality(Region("ap-south"), Jurisdiction("in"))
PLACES = (EU_WEST, EU_NORTH, US_EAST, AP_SOUTH)

EU_ONLY = ResidencyRule(allow_jurisdictions=frozenset({Jurisdiction("eu")}))


def cluster(
    name: str,
    place: Locality = EU_WEST,
    state: HealthState = HealthState.HEALTHY,
    *,
    models: Iterable[str] | None = (MODEL,),
    ready: int = 8,
    total: int = 8,
    capacity: float | None = 100.0,
    saturation: float | None = 0.2,
    loads: Mapping[ModelName, LoadReport] | None = None,
    draining: bool = False,
    ejected: bool = False,
    probing_ok: bool = True,
    ramp: float = 1.0,
    policy_mismatch: bool = False,
) -> Candidate:
    return Candidate(
        name,
        place,
        None if models is None else frozenset(ModelName(model) for model in models),
        LoadReport(ready=ready, total=total, capacity_requests=capacity, saturation=saturation),
        state=state,
        draining=draining,
        ejected=ejected,
        probing_ok=probing_ok,
        ramp=ramp,
        policy_mismatch=policy_mismatch,
        loads=loads or {},
    )


def policy(routing: RoutingPolicy | None = None) -> PolicySnapshot:
    return PolicySnapshot(
        7,
        WallMs(0),
        models=(ModelPolicy(MODEL, (ALIAS, ModelName("chat-latest"))), ModelPolicy(OTHER_MODEL)),
        routing=routing or RoutingPolicy(),
    )


def snapshot(*candidates: Candidate, here: Locality = EU_WEST) -> FleetSnapshot:
    return FleetSnapshot(42, 7, here, candidates)


def fleet(
    *candidates: Candidate, routing: RoutingPolicy | None = None, profile: SchedulingProfile = CLUSTERS
) -> Prepared:
    return prepare(snapshot(*candidates), policy(routing), profile)


def request(
    number: int = 0,
    *,
    model: str = MODEL,
    grants: Iterable[str] | None = None,
    residency: ResidencyRule = ANYWHERE,
    priority: int = 0,
) -> InferenceRequest:
    models = None if grants is None else frozenset(ModelName(name) for name in grants)
    return InferenceRequest(
        RequestId(f"01930000-0000-7000-8000-{number:012x}"),
        Tenant(TenantId("acme"), Grants(models)),
        ModelName(model),
        residency,
        priority=priority,
    )
