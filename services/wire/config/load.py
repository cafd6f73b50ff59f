"""The door of configuration: `load` reads and checks documents, `to_policy` makes the snapshot.

Callers need nothing else of this folder but the kinds themselves. No file is read and no time is
asked for here.
"""

from collections.abc import Iterable, Sequence

from services.core.policy import FailoverPolicy, HealthPolicy, PolicySnapshot
from services.core.policy import RoutingPolicy as CoreRoutingPolicy
from services.core.units import WallMs
from services.wire.config.cross_checks import CHECKS
from services.wire.config.documents import Documents, Source, read_documents
from services.wire.config.gateway_checks import PodLabels, selectors_match
from services.wire.config.problems import Problem


class InvalidDocumentsError(ValueError):
    """The documents cannot become a policy; `problems` says why."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


def load(sources: Iterable[Source] | str, pods: Sequence[PodLabels] | None = None) -> Documents:
    """Return the documents of `sources` (or of one text, named `(text)`) with every problem found.

    `pods` are those that exist, where somebody has listed them; selectors are then held against them.
    """
    if isinstance(sources, str):
        sources = [Source("(text)", sources.encode(errors="surrogatepass"))]
    checks = CHECKS if pods is None else (*CHECKS, selectors_match(pods))
    return read_documents(sources, checks)


def to_policy(documents: Documents, revision: int, now_ms: WallMs) -> PolicySnapshot:
    """Return the policy the documents declare; raise `InvalidDocumentsError` when they have errors or no Fleet.

    The snapshot is the whole policy: what the documents leave out is not declared any more.
    """
    errors = documents.errors
    if not errors and not documents.fleets:
        errors = (
            Problem(
                "(all files)", 0, "kind", "(missing)", "a policy needs a Fleet; without one every model ends"
            ),
        )
    if errors:
        raise InvalidDocumentsError(errors)
    fleet = documents.fleets[0].value.spec
    settings = documents.routing_policies[0].value.spec if documents.routing_policies else None
    return PolicySnapshot(
        revision=revision,
        published_at_ms=now_ms,
        clusters=tuple(cluster.to_core() for cluster in fleet.clusters),
        models=tuple(model.to_core() for model in fleet.models),
        tenants=tuple(tenant.value.to_core() for tenant in documents.tenants),
        token_keys=tuple(key.to_core() for keys in documents.token_keys for key in keys.value.spec.keys),
        health=settings.health.to_core() if settings else HealthPolicy(),
        failover=settings.failover.to_core() if settings else FailoverPolicy(),
        routing=settings.routing.to_core() if settings else CoreRoutingPolicy(),
    )
