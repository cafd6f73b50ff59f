"""What a caller asks for: the request as routing sees it, and who asks.

Bodies, headers and sockets are not here: `wire/openai` reads a body once and
yields an `InferenceRequest`. Apart because both tiers and every door share it.
"""

import enum
from dataclasses import dataclass
from typing import NewType

from services.core.residency import ANYWHERE, ResidencyRule
from services.core.units import Tokens
from services.core.values import value

RequestId = NewType("RequestId", str)
"""The router's own id (UUIDv7 text, 36 characters). A client's id is never used in its place."""

TenantId = NewType("TenantId", str)
ModelName = NewType("ModelName", str)


class TrafficClass(enum.Enum):
    """What the caller is waiting for; selects timeouts and, later, shaping weights."""

    INTERACTIVE = "interactive"
    STANDARD = "standard"
    BATCH = "batch"


class Band(enum.IntEnum):
    """Priority band by the sign of the objective's priority (negative = sheddable)."""

    CRITICAL = 0
    STANDARD = 1
    SHEDDABLE = 2


def band_of(priority: int) -> Band:
    """Return the band of an InferenceObjective priority."""
    if priority > 0:
        return Band.CRITICAL
    return Band.STANDARD if priority == 0 else Band.SHEDDABLE


@dataclass(frozen=True, slots=True)
class Grants:
    """What a caller may use: models by public name (`None` = every model) and residency.

    Already the intersection of tenant record and token; a header may narrow it further.
    """

    models: frozenset[ModelName] | None = None
    residency: ResidencyRule = ANYWHERE
    priority_ceiling: int = 0


@dataclass(frozen=True, slots=True)
class Tenant:
    """An authenticated caller. Comes from the token and the tenant record, never from a header."""

    id: TenantId
    grants: Grants
    subject: str = ""


@value
class InferenceRequest:
    """One inference as both tiers see it.

    `model` is the public name the caller gave. `residency` is the full intersection (tenant,
    token, header). `prompt_tokens` and `max_output_tokens` are estimates, `None` when unknown.
    """

    request_id: RequestId
    tenant: Tenant
    model: ModelName
    residency: ResidencyRule
    traffic_class: TrafficClass = TrafficClass.INTERACTIVE
    priority: int = 0
    prompt_tokens: Tokens | None = None
    max_output_tokens: Tokens | None = None
    stream: bool = False
    replayable: bool = True
    session: str | None = None
