"""The part of a picker's assembly that builds where endpoints come from, and what Kubernetes adds to that.

Named by `assembly` alone. Nothing is started here, and no connection is made before the first call.
"""

import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from services.adapters.kubernetes.api import KubernetesApi, own_namespace
from services.adapters.kubernetes.discovery import KubernetesDiscovery
from services.adapters.kubernetes.lease import KubernetesLease
from services.adapters.kubernetes.objects import KubernetesObjects
from services.adapters.ports import Clock, EndpointDiscovery, Ids, PoolObjectsSource, PublisherLease
from services.adapters.system.dns_discovery import DnsDiscovery
from services.adapters.system.file_discovery import FileDiscovery
from services.core.units import ms
from services.endpoint_picker import discovery_settings as wanted
from services.wire.config.settings_source import SettingsError


@dataclass(frozen=True, slots=True)
class Sources:
    """Discovery by pool, for the pools that are not static; objectives and rewrites by namespace; and their API."""

    endpoints: Mapping[str, EndpointDiscovery]
    objects: tuple[PoolObjectsSource, ...] = ()
    api: KubernetesApi | None = None

    async def close(self) -> None:
        """Close every source and the connections they share."""
        for source in self.endpoints.values():
            await source.close()
        for objects in self.objects:
            await objects.close()
        if self.api is not None:
            await self.api.close()


def build_sources(
    pools: Iterable[tuple[str, wanted.Discovery]],
    access: wanted.KubernetesAccess,
    clock: Clock,
    ids: Ids,
    may_write: Callable[[], bool] = lambda: False,
    *,
    elects: bool = False,
) -> Sources:
    """Return the sources of (pool name, its discovery). Raises `SettingsError` where no namespace is to be had.

    `may_write` says whether this replica writes status conditions: the elected one does. With `elects` there is an
    API for `build_lease` whatever the pools need.
    """
    endpoints: dict[str, EndpointDiscovery] = {}
    in_cluster: dict[str, dict[str, str]] = {}
    api = KubernetesApi(access.kubeconfig, access.context) if elects else None
    for name, chosen in pools:
        if isinstance(chosen, wanted.FileDiscovery):
            endpoints[name] = FileDiscovery(chosen.file, clock, ms(chosen.look_every_ms))
        elif isinstance(chosen, wanted.DnsDiscovery):
            endpoints[name] = DnsDiscovery(chosen.host, chosen.ports, clock, ms(chosen.ask_every_ms))
        elif isinstance(chosen, wanted.KubernetesDiscovery):
            api = api or KubernetesApi(access.kubeconfig, access.context)
            namespace = chosen.namespace or _namespace(access)
            endpoints[name] = KubernetesDiscovery(api, namespace, chosen.pool, clock, ids)
            in_cluster.setdefault(namespace, {})[chosen.pool] = name
    objects = tuple(
        KubernetesObjects(api, namespace, found, clock, ids, may_write=may_write)
        for namespace, found in in_cluster.items()
        if api is not None
    )
    return Sources(endpoints, objects, api)


def build_lease(
    api: KubernetesApi, access: wanted.KubernetesAccess, clock: Clock, ids: Ids
) -> PublisherLease:
    """Return the election by Lease. Raises `SettingsError` where no namespace is to be had."""
    return KubernetesLease(api, _namespace(access), access.lease_name, socket.gethostname(), clock, ids)


def _namespace(access: wanted.KubernetesAccess) -> str:
    namespace = access.namespace or own_namespace()
    if not namespace:
        raise SettingsError(("kubernetes.namespace: needed outside of a pod",))
    return namespace
