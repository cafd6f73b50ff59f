"""Objectives and rewrites of pools from Kubernetes, and the one status condition that is ours to write on them.

Both groups are read (`llm-d.ai`, and the older `inference.networking.x-k8s.io`); of two objects of one name the
newer group's counts. An object that refers to a pool of ours gets `Accepted`: True, or False with the broken rule.
`InferencePool` status is the gateways': every entry of `parents` belongs to the controller of that parent.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from services.adapters.kubernetes.api import KubernetesApi, Resource
from services.adapters.kubernetes.watch import Objects, ObjectWatch, WatchRules
from services.adapters.kubernetes.watching import Watching
from services.adapters.ports import AdapterError, Clock, Ids, PoolObjects
from services.core.inference import ModelName
from services.core.models.objectives import ObjectiveTable
from services.core.models.rewrites import Rewrite, RewriteRule, Target
from services.core.units import Duration, WallMs, seconds
from services.wire.config.inference_api import (
    OBJECTIVE_API_VERSIONS,
    BrokenObjectError,
    InferenceModelRewrite,
    InferenceObjective,
    read_inference_object,
)

_LOG = logging.getLogger(__name__)

PLURALS: Final = {
    "InferenceObjective": "inferenceobjectives",
    "InferenceModelRewrite": "inferencemodelrewrites",
}
ACCEPTED: Final = "Accepted"
INVALID: Final = "Invalid"
REVIEW_EVERY: Final = seconds(5)
"""Conditions are for people: a publisher that was just elected writes them within this."""
MAX_MESSAGE_CHARS: Final = 1024
"""Conditions hold 32 KiB at most; nobody reads more than a line."""

Readable = InferenceObjective | InferenceModelRewrite


@dataclass(frozen=True, slots=True)
class _Judged:
    """One object as the server has it: what it is (None: broken, and why)."""

    tree: Mapping[str, Any]
    read: Readable | None
    fault: str = ""

    @property
    def pool(self) -> str:
        reference = (self.tree.get("spec") or {}).get("poolRef") or {}
        return str(reference.get("name", ""))


class KubernetesObjects:
    """`PoolObjectsSource` over the objectives and rewrites of `pools` in `namespace`.

    `pools` maps the InferencePools that are ours to the names they have here.
    `may_write` says whether this replica writes conditions (the elected one does); without it none are written.
    """

    def __init__(
        self,
        api: KubernetesApi,
        namespace: str,
        pools: Mapping[str, str],
        clock: Clock,
        ids: Ids,
        rules: WatchRules | None = None,
        *,
        may_write: Callable[[], bool] = lambda: False,
        review_every: Duration = REVIEW_EVERY,
    ) -> None:
        self._api = api
        self._clock = clock
        self._pools = pools
        self._may_write = may_write
        self._review_every = review_every
        self._unwritten = ""
        self._watches: dict[tuple[str, str], ObjectWatch] = {}
        self._found: dict[tuple[str, str], Objects] = {}
        # The older group is listed first, so that the newer one's object of the same name replaces it.
        for api_version in reversed(OBJECTIVE_API_VERSIONS):
            group, version = api_version.split("/")
            for kind, plural in PLURALS.items():
                resource = Resource(group, version, plural, namespace)
                watch = ObjectWatch(api, resource, clock, ids, rules, optional=True)
                self._watches[api_version, kind] = watch

    @property
    def trouble(self) -> str:
        """What keeps objects from being current."""
        return next((watch.trouble for watch in self._watches.values() if watch.trouble), "")

    async def sets(self) -> AsyncGenerator[PoolObjects, None]:
        """Yield what is declared, then again whenever it changed."""
        told: PoolObjects | None = None
        async with Watching() as watching:
            for key, watch in self._watches.items():
                watching.follow(watch, self._taker(key))
            # Being elected changes no object, and a condition that could not be written is to be written later.
            watching.remind(self._clock, self._review_every)
            while True:
                await watching.changed()
                if self._found.keys() != self._watches.keys():
                    continue
                judged = self._judged()
                objects = _pool_objects(judged, self._pools)
                if objects != told:
                    told = objects
                    yield objects
                if self._may_write():
                    await self._write_conditions(judged)

    async def close(self) -> None:
        """Nothing is held beyond `sets`."""

    def _taker(self, key: tuple[str, str]) -> Callable[[Objects], None]:
        def take(objects: Objects) -> None:
            self._found[key] = objects

        return take

    def _judged(self) -> list[_Judged]:
        """Return the objects of our pools, of each kind and name the one that counts."""
        chosen: dict[tuple[str, str], _Judged] = {}
        for api_version, kind in self._watches:
            for tree in self._found[api_version, kind]:
                # Items of a list do not repeat their own kind.
                judged = _judge({**tree, "apiVersion": api_version, "kind": kind})
                if judged.pool in self._pools:
                    chosen[kind, tree["metadata"]["name"]] = judged
        return [*chosen.values()]

    async def _write_conditions(self, judged: Iterable[_Judged]) -> None:
        for each in judged:
            conditions = _conditions(each, self._clock.wall_ms())
            if conditions is None:
                continue
            metadata = each.tree["metadata"]
            group_version, plural = each.tree["apiVersion"], PLURALS[each.tree["kind"]]
            path = (
                f"/apis/{group_version}/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}/status"
            )
            try:
                await self._api.patch(path, {"status": {"conditions": conditions}})
            except AdapterError as error:
                # The next review brings us here again; the objects hold without their conditions.
                if str(error) != self._unwritten:
                    self._unwritten = str(error)
                    _LOG.warning("a condition could not be written: %s", error)


def _judge(tree: Mapping[str, Any]) -> _Judged:
    try:
        read = read_inference_object(tree, prune=True)
    except BrokenObjectError as error:
        return _Judged(tree, None, str(error)[:MAX_MESSAGE_CHARS])
    if isinstance(read, InferenceObjective | InferenceModelRewrite):
        return _Judged(tree, read)
    return _Judged(tree, None, f"unexpected kind {tree['kind']}")


def _pool_objects(judged: Iterable[_Judged], names: Mapping[str, str]) -> PoolObjects:
    priorities: dict[str, dict[str, int]] = {}
    rewrites: list[Rewrite] = []
    for each in judged:
        if isinstance(each.read, InferenceObjective):
            named = priorities.setdefault(names[each.pool], {})
            named[each.read.metadata.name] = each.read.priority
        elif each.read is not None:
            rewrites.append(_rewrite(each.read, names[each.pool]))
    return PoolObjects({pool: ObjectiveTable(found) for pool, found in priorities.items()}, tuple(rewrites))


def _rewrite(read: InferenceModelRewrite, pool: str) -> Rewrite:
    return Rewrite(
        read.metadata.name,
        pool,
        read.metadata.created_at_ms,
        tuple(
            RewriteRule(
                tuple(ModelName(match.model.value) for match in rule.matches),
                tuple(
                    Target(ModelName(target.model_rewrite), target.weight or 0)
                    for target in rule.targets or ()
                ),
            )
            for rule in read.spec.rules
        ),
    )


def _conditions(judged: _Judged, wall_ms: WallMs) -> list[dict[str, Any]] | None:
    """Return the conditions that the object should have, None when it has them."""
    metadata = judged.tree["metadata"]
    present = (judged.tree.get("status") or {}).get("conditions") or []
    wanted = {
        "type": ACCEPTED,
        "status": "True" if judged.read is not None else "False",
        "reason": ACCEPTED if judged.read is not None else INVALID,
        "message": judged.fault,
        "observedGeneration": metadata.get("generation", 0),
    }
    old: Mapping[str, Any] = next((each for each in present if each.get("type") == ACCEPTED), {})
    if all(old.get(name) == value for name, value in wanted.items()):
        return None
    moved = old.get("status") != wanted["status"]
    at = datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    wanted["lastTransitionTime"] = at if moved else old.get("lastTransitionTime", at)
    return [*(each for each in present if each.get("type") != ACCEPTED), wanted]
