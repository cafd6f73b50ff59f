"""Election by a `coordination.k8s.io/v1` Lease, as Kubernetes' own controllers elect.

A candidate judges a lease by how long it has seen it unchanged on its own monotonic clock, never by the times that
stand in it. A holder counts from the moment it *sent* its last renewal and stops before others may take over, so
that no two hold it while clocks run at one speed. Epochs (`core/pods/fencing`) guard what elections cannot.
"""

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from services.adapters.kubernetes.api import ApiStatusError, KubernetesApi, Resource
from services.adapters.ports import AdapterError, Clock, Ids
from services.core.units import NS_PER_MS, Duration, Instant, seconds

_LOG = logging.getLogger(__name__)
NOT_FOUND = 404
CONFLICT = 409


@dataclass(frozen=True, slots=True)
class LeaseRules:
    """`lasts`: how long an unchanged lease binds others. `renew_within`: when a holder that cannot renew gives up.

    Publishers are replaced within `lasts` + `every`; meanwhile routers keep the cluster by its probes.
    """

    lasts: Duration = seconds(6)
    renew_within: Duration = seconds(4)
    every: Duration = seconds(1)


class KubernetesLease:
    """`PublisherLease` port over the Lease `name`. `identity` must differ between candidates."""

    def __init__(
        self,
        api: KubernetesApi,
        namespace: str,
        name: str,
        identity: str,
        clock: Clock,
        ids: Ids,
        rules: LeaseRules | None = None,
    ) -> None:
        self._api = api
        self._collection = Resource("coordination.k8s.io", "v1", "leases", namespace).path
        self._path = f"{self._collection}/{name}"
        self._namespace = namespace
        self._name = name
        # Two processes of one host name, or one restarted, are two candidates.
        self._identity = f"{identity}_{ids.token(4).hex()}"
        self._clock = clock
        self._rules = rules or LeaseRules()
        self._lease: dict[str, Any] = {}
        self._renewed_at: Instant | None = None
        self._seen_version = ""
        self._seen_at = Instant(0)
        self._renewing: asyncio.Task[None] | None = None
        self._trouble = ""

    async def acquire(self) -> None:
        """Wait until this candidate holds the lease; an API server that is away only makes it longer."""
        while not self.held():
            self._end_renewing()
            try:
                taken = await self._try_to_take()
                self._trouble = ""
            except AdapterError as error:
                taken = False
                self._say(str(error))
            if taken:
                self._renewing = asyncio.get_running_loop().create_task(self._renew())
            else:
                await self._clock.sleep(self._rules.every)

    def held(self) -> bool:
        """Whether the last renewal was sent recently enough that nobody else can hold the lease."""
        return (
            self._renewed_at is not None and self._clock.now() - self._renewed_at < self._rules.renew_within
        )

    async def release(self) -> None:
        """Give the lease up so that the next candidate need not wait for it to run out."""
        held = self.held()
        self._end_renewing()
        self._renewed_at = None
        if not held:
            return
        try:
            # A renewal that was cut off may have been carried out: what stands there now is asked, not remembered.
            self._lease = await self._api.get(self._path)
            if self._holder() == self._identity:
                await self._api.replace(self._path, self._body(""))
        except AdapterError as error:
            _LOG.info("lease %s/%s runs out by itself: %s", self._namespace, self._name, error)

    async def _try_to_take(self) -> bool:
        try:
            self._lease = await self._api.get(self._path)
        except ApiStatusError as error:
            if error.code != NOT_FOUND:
                raise
            self._lease = {}
            return await self._write()
        version = self._lease["metadata"]["resourceVersion"]
        if version != self._seen_version:
            self._seen_version, self._seen_at = version, self._clock.now()
        ran_out = self._clock.now() - self._seen_at >= self._lasts()
        return (self._holder() in {"", self._identity} or ran_out) and await self._write()

    def _say(self, trouble: str) -> None:
        """Say once what goes on every second while the API server is away."""
        if trouble != self._trouble:
            self._trouble = trouble
            _LOG.warning("lease %s/%s: %s", self._namespace, self._name, trouble)

    def _holder(self) -> str:
        return str((self._lease.get("spec") or {}).get("holderIdentity") or "")

    def _lasts(self) -> Duration:
        """How long the present holder's renewals bind: as long as it declared, which may be another version's rule."""
        declared = (self._lease.get("spec") or {}).get("leaseDurationSeconds")
        return seconds(declared) if declared else self._rules.lasts

    async def _write(self) -> bool:
        """Write the lease as ours; return whether it took. Who was faster made the version another one."""
        sent_at = self._clock.now()
        try:
            if self._lease:
                self._lease = await self._api.replace(self._path, self._body(self._identity))
            else:
                self._lease = await self._api.create(self._collection, self._body(self._identity))
        except ApiStatusError as error:
            if error.code in {CONFLICT, NOT_FOUND}:
                return False
            raise
        self._renewed_at = sent_at
        return True

    async def _renew(self) -> None:
        """Renew until the lease is lost."""
        while self.held():
            await self._clock.sleep(self._rules.every)
            try:
                if not await self._write() and await self._lost_to_another():
                    self._renewed_at = None
            except AdapterError as error:
                self._say(str(error))

    async def _lost_to_another(self) -> bool:
        """Look who wrote it: a change by an administrator leaves the holder what it was."""
        try:
            self._lease = await self._api.get(self._path)
        except ApiStatusError as error:
            if error.code != NOT_FOUND:
                raise
            self._lease = {}
            return False
        return self._holder() != self._identity

    def _end_renewing(self) -> None:
        task, self._renewing = self._renewing, None
        if task is not None:
            task.cancel()

    def _body(self, holder: str) -> dict[str, Any]:
        before = self._lease.get("spec") or {}
        at = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        changes = before.get("holderIdentity", "") != holder
        metadata = self._lease.get("metadata") or {"name": self._name, "namespace": self._namespace}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": max(1, self._rules.lasts // (1000 * NS_PER_MS)) if holder else 1,
                "acquireTime": at if changes else before.get("acquireTime", at),
                "renewTime": at,
                "leaseTransitions": before.get("leaseTransitions", 0) + (changes and bool(before)),
            },
        }
