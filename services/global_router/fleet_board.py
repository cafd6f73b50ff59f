"""What watchers of the fleet are shown: every cluster's status, and the pod lists.

Read-only over the view; reports and pod lists are kept as the feed brings them and decoded only when
somebody asks. Apart from the view because no decision depends on it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from services.adapters.ports import Change, ChangeKind, Feed, FeedEvent, FeedListing, FeedReport
from services.core.fleet import Candidate, PodsReport, PoolReport
from services.core.locality import ClusterId
from services.core.units import Duration, Instant, since
from services.global_router.view import View
from services.wire.errors import UndecodableError
from services.wire.health_codec import decode_report
from services.wire.pods_codec import decode_pods

PAYLOADS_MAX = 20_000
"""Reports and pools of all clusters together; a key beyond it is not kept, so that a mad publisher fills no memory."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """One cluster as this router sees it. `silence` is the time since its last live report, None before one.

    `probing_ok` of the candidate says what probes found, also while the router is isolated and routes
    by older verdicts.
    """

    candidate: Candidate
    pools: tuple[PoolReport, ...]
    silence: Duration | None


class FleetBoard:
    """Answers `WatchFleet` from the view and the feed."""

    def __init__(self, view: View, feed: Feed) -> None:
        self._view = view
        self._feed = feed
        self._payloads: dict[tuple[ChangeKind, str], bytes] = {}
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin to keep what the feed brings."""
        self._unsubscribe = self._feed.subscribe(self._take)

    def stop(self) -> None:
        """Leave the feed."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def statuses(self, now: Instant) -> list[ClusterStatus]:
        """Return every cluster of the current snapshot, in policy order."""
        clusters = self._view.state.clusters
        found = []
        for candidate in self._view.current.snapshot.candidates:
            record = clusters.get(ClusterId(candidate.id))
            if record is not None:
                silence = since(record.quiet_since, now) if record.heard else None
                shown = replace(candidate, probing_ok=not record.failing)
                found.append(ClusterStatus(shown, self._pools(candidate.id), silence))
        return found

    def _pools(self, cluster: str) -> tuple[PoolReport, ...]:
        payload = self._payloads.get((ChangeKind.HEALTH, cluster))
        if payload is None:
            return ()
        try:
            return decode_report(payload).pools
        except UndecodableError:
            return ()

    def pods(self) -> list[PodsReport]:
        """Return the pod lists of all clusters, by key; what cannot be read is left out."""
        lists = []
        for (kind, _), payload in sorted(self._payloads.items(), key=lambda item: item[0][1]):
            if kind is not ChangeKind.PODS:
                continue
            try:
                lists.append(decode_pods(payload))
            except UndecodableError:
                continue
        return lists

    def _take(self, event: FeedEvent) -> None:
        if isinstance(event, FeedReport):
            self._keep(event.change)
        elif isinstance(event, FeedListing):
            for entry in event.listing.entries:
                self._keep(entry)

    def _keep(self, change: Change) -> None:
        if change.kind is ChangeKind.POLICY:
            return
        key = (change.kind, change.key)
        if change.payload is None:
            self._payloads.pop(key, None)
        elif key in self._payloads or len(self._payloads) < PAYLOADS_MAX:
            self._payloads[key] = change.payload
