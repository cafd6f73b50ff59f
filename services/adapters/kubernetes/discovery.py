"""Discovery in Kubernetes: the pods that an InferencePool selects, on the pool's target ports.

The pool itself is watched: a changed selector or port acts like a changed pod. A deleted pool has no endpoints;
an API server that is away leaves everything as it was. A pool that breaks its schema is said and not believed.
"""

import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from services.adapters.kubernetes.api import KubernetesApi, Resource
from services.adapters.kubernetes.pods import endpoints_of
from services.adapters.kubernetes.watch import Objects, ObjectWatch, WatchRules
from services.adapters.kubernetes.watching import Watching
from services.adapters.ports import Clock, Ids
from services.core.pods.discovered import DiscoveredEndpoint
from services.wire.config.inference_api import BrokenObjectError, InferencePool, read_inference_object

_LOG = logging.getLogger(__name__)

POOL_GROUP = "inference.networking.k8s.io"
POOL_VERSION = "v1"


@dataclass(frozen=True, slots=True)
class _Selected:
    """What of a pool decides about its endpoints."""

    labels: str
    ports: tuple[int, ...]


class KubernetesDiscovery:
    """`EndpointDiscovery` over InferencePool `name` of `namespace`. `api` belongs to whoever made it."""

    def __init__(
        self,
        api: KubernetesApi,
        namespace: str,
        name: str,
        clock: Clock,
        ids: Ids,
        rules: WatchRules | None = None,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._clock = clock
        self._ids = ids
        self._rules = rules
        self._pool_watch = self._watch(
            Resource(POOL_GROUP, POOL_VERSION, "inferencepools", namespace, fields=f"metadata.name={name}")
        )
        self._pod_watch: ObjectWatch | None = None
        self._end_pods: Callable[[], object] | None = None
        self._name = name
        self._fault = ""
        self._selected: _Selected | None = None
        self._known = False
        self._pods: Objects | None = None

    @property
    def trouble(self) -> str:
        """What keeps the endpoints from being current: the pool's schema, its watch, or that of its pods."""
        pods = "" if self._pod_watch is None else self._pod_watch.trouble
        return self._fault or self._pool_watch.trouble or pods

    async def sets(self) -> AsyncGenerator[tuple[DiscoveredEndpoint, ...], None]:
        """Yield the pool's endpoints, then again whenever one of them or the pool changed."""
        told: tuple[DiscoveredEndpoint, ...] | None = None
        async with Watching() as watching:
            watching.follow(self._pool_watch, lambda objects: self._take_pool(objects, watching))
            while True:
                await watching.changed()
                endpoints = self._endpoints()
                if endpoints is not None and endpoints != told:
                    told = endpoints
                    yield endpoints

    async def close(self) -> None:
        """Nothing is held beyond `sets`."""

    def _watch(self, resource: Resource) -> ObjectWatch:
        return ObjectWatch(self._api, resource, self._clock, self._ids, self._rules)

    def _take_pool(self, objects: Objects, watching: Watching) -> None:
        try:
            selected = _selected_by(objects)
        except BrokenObjectError as error:
            if str(error) != self._fault:
                self._fault = str(error)
                _LOG.warning("InferencePool %s/%s stays as it was: %s", self._namespace, self._name, error)
            return
        self._fault = ""
        self._known = True
        before, self._selected = self._selected, selected
        if selected is None or (before is not None and before.labels == selected.labels):
            return
        if self._end_pods is not None:
            self._end_pods()
        # The pods of the old selector serve on until those of the new one are listed.
        self._pod_watch = self._watch(Resource("", "v1", "pods", self._namespace, labels=selected.labels))
        self._end_pods = watching.follow(self._pod_watch, self._take_pods)

    def _take_pods(self, objects: Objects) -> None:
        self._pods = objects

    def _endpoints(self) -> tuple[DiscoveredEndpoint, ...] | None:
        """Return the endpoints, None while they are not known."""
        if self._selected is None:
            return () if self._known else None
        if self._pods is None:
            return None
        return endpoints_of(self._pods, self._selected.ports, self._clock.wall_ms())


def _selected_by(objects: Objects) -> _Selected | None:
    """Return what the watched pool selects, None when it does not exist. Raises `BrokenObjectError`."""
    for tree in objects:
        pool = read_inference_object(tree, prune=True)
        if isinstance(pool, InferencePool):
            labels = ",".join(
                f"{key}={value}" for key, value in sorted(pool.spec.selector.match_labels.items())
            )
            return _Selected(labels, tuple(port.number for port in pool.spec.target_ports))
    return None
