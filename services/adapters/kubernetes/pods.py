"""A Pod as the API has it -> an endpoint as discovery declares it. Pure: JSON and the wall clock's time come in.

A pod leaves at once with its `deletionTimestamp`, whatever its conditions still say: they stay true for the whole
grace period. Only labels, address, conditions and container states are read; nothing here sees an environment, a
volume or a secret.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from services.core.pods.discovered import DiscoveredEndpoint, StartPhase
from services.core.units import NS_PER_MS, Duration, WallMs

ENGINE_LABELS: Final = ("llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type")
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
OVER: Final = frozenset(("Succeeded", "Failed"))
_WORKING: Final = frozenset(("ContainerCreating", "PodInitializing"))
"""Why a container waits while its start goes on; any other reason (a crash loop, no such image) is a failure."""


def endpoint_of(pod: Mapping[str, Any], ports: tuple[int, ...], wall_ms: WallMs) -> DiscoveredEndpoint | None:
    """Return the endpoint, None for a pod that has run to its end."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    if status.get("phase") in OVER:
        return None
    labels: dict[str, str] = metadata.get("labels") or {}
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    ready = conditions.get("Ready", {}).get("status") == "True"
    phase, since_ms = _phase(metadata, status, conditions, ready=ready)
    return DiscoveredEndpoint(
        name=metadata["name"],
        address=status.get("podIP") or "",
        ports=ports,
        labels=labels,
        engine=next((labels[name] for name in ENGINE_LABELS if name in labels), ""),
        zone=labels.get(ZONE_LABEL, ""),
        terminating="deletionTimestamp" in metadata,
        ready=ready,
        phase=phase,
        phase_age=Duration(0) if since_ms is None else Duration(max(0, wall_ms - since_ms) * NS_PER_MS),
    )


def endpoints_of(
    pods: Iterable[Mapping[str, Any]], ports: tuple[int, ...], wall_ms: WallMs
) -> tuple[DiscoveredEndpoint, ...]:
    """Return the endpoints of all pods that have not run to their end."""
    found = (endpoint_of(pod, ports, wall_ms) for pod in pods)
    return tuple(endpoint for endpoint in found if endpoint is not None)


def _phase(
    metadata: Mapping[str, Any],
    status: Mapping[str, Any],
    conditions: Mapping[str, Mapping[str, Any]],
    *,
    ready: bool,
) -> tuple[StartPhase | None, WallMs | None]:
    """Return the start-up phase and when it began; (None, None) when the start has failed."""
    changed = _ms(conditions.get("Ready", {}).get("lastTransitionTime"))
    if ready:
        return StartPhase.READY, changed
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") != "True":
        return StartPhase.SCHEDULED, _ms(metadata.get("creationTimestamp"))
    initial = [each.get("state") or {} for each in status.get("initContainerStatuses") or ()]
    states = [each.get("state") or {} for each in status.get("containerStatuses") or ()]
    if any(_failed(state) for state in (*initial, *states)):
        return None, None
    running = [state["running"].get("startedAt") for state in states if "running" in state]
    if states and len(running) == len(states):
        started = max((found for text in running if (found := _ms(text)) is not None), default=None)
        if started is not None and changed is not None and changed > started:
            # It was ready after this start and is no longer: not a start, but a failing server.
            return StartPhase.READY, changed
        return StartPhase.LOADING, started
    if any("running" in state for state in (*initial, *states)):
        # An init container that fetches weights, or one of several containers: the images are there.
        return StartPhase.LOADING, None
    return StartPhase.PULLING, _ms(scheduled.get("lastTransitionTime"))


def _failed(state: Mapping[str, Any]) -> bool:
    if "waiting" in state:
        return state["waiting"].get("reason", "ContainerCreating") not in _WORKING
    return bool((state.get("terminated") or {}).get("exitCode", 0))


def _ms(text: str | None) -> WallMs | None:
    return None if text is None else WallMs(round(datetime.fromisoformat(text).timestamp() * 1000))
