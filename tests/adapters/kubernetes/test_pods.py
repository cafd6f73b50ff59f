"""What a Pod's JSON means: readiness, termination, engine, zone, and every phase of its start."""

from typing import Any

import pytest

from services.adapters.kubernetes.pods import endpoint_of, endpoints_of
from services.core.pods.discovered import StartPhase
from services.core.units import WallMs, seconds

CREATED, SCHEDULED, STARTED, READY = (f"2026-01-01T00:00:{second:02}Z" for second in (0, 10, 20, 50))
NOW = WallMs(1_767_225_660_000)
"""2026-01-01T00:01:00Z."""


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "creationTimestamp": CREATED, "labels": {"app": "x"}}, "status": status}


def conditions(ready: str | None = None, scheduled: bool = True, changed: str = SCHEDULED) -> list[Any]:
    found = [
        {"type": "PodScheduled", "status": str(scheduled), "lastTransitionTime": SCHEDULED},
        {"type": "Ready", "status": ready, "lastTransitionTime": changed},
    ]
    return found[: 1 if ready is None else 2]


def containers(*states: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": str(number), "state": state} for number, state in enumerate(states)]


RUNNING = {"running": {"startedAt": STARTED}}
CREATING = {"waiting": {"reason": "ContainerCreating"}}
LOADING, PULLING = StartPhase.LOADING, StartPhase.PULLING


@pytest.mark.parametrize(
    ("status", "phase", "age_s"),
    [
        ({}, StartPhase.SCHEDULED, 60),
        ({"conditions": conditions(scheduled=False)}, StartPhase.SCHEDULED, 60),
        ({"conditions": conditions()}, PULLING, 50),
        ({"conditions": conditions("False"), "containerStatuses": containers(CREATING)}, PULLING, 50),
        ({"conditions": conditions("False"), "containerStatuses": containers({"waiting": {}})}, PULLING, 50),
        ({"conditions": conditions("False"), "containerStatuses": containers(RUNNING)}, LOADING, 40),
        ({"conditions": conditions("False"), "containerStatuses": containers(RUNNING, CREATING)}, LOADING, 0),
        (
            {
                "conditions": conditions("False"),
                "initContainerStatuses": containers(RUNNING),
                "containerStatuses": containers({"waiting": {"reason": "PodInitializing"}}),
            },
            LOADING,
            0,
        ),
        ({"conditions": conditions("True", changed=READY)}, StartPhase.READY, 10),
        (
            {"conditions": conditions("False", changed=READY), "containerStatuses": containers(RUNNING)},
            StartPhase.READY,
            10,
        ),
        (
            {
                "conditions": conditions("False"),
                "containerStatuses": containers({"waiting": {"reason": "ErrImagePull"}}),
            },
            None,
            0,
        ),
        (
            {
                "conditions": conditions("False"),
                "containerStatuses": containers({"terminated": {"exitCode": 1}}),
            },
            None,
            0,
        ),
    ],
)
def test_how_far_a_start_has_come(status: dict[str, Any], phase: StartPhase | None, age_s: float) -> None:
    found = endpoint_of(pod(**status), (8000,), NOW)
    assert found is not None
    assert (found.phase, found.phase_age) == (phase, seconds(age_s))
    assert found.ready is (phase is StartPhase.READY and status["conditions"][-1]["status"] == "True")


@pytest.mark.parametrize("over", ["Succeeded", "Failed"])
def test_a_pod_that_has_run_to_its_end_is_no_endpoint(over: str) -> None:
    assert endpoints_of([pod(phase=over), pod(phase="Running", podIP="10.0.0.1")], (1,), NOW) == (
        endpoint_of(pod(phase="Running", podIP="10.0.0.1"), (1,), NOW),
    )


def test_a_deletion_timestamp_is_termination_whatever_the_conditions_say() -> None:
    ready = pod(conditions=conditions("True", changed=READY), podIP="fd00::1")
    ready["metadata"]["deletionTimestamp"] = READY
    found = endpoint_of(ready, (8000, 8001), NOW)
    assert found is not None
    assert (found.terminating, found.ready, found.address, found.ports) == (
        True,
        True,
        "fd00::1",
        (8000, 8001),
    )


@pytest.mark.parametrize(
    ("labels", "engine", "zone"),
    [
        ({"llm-d.ai/engine-type": "sglang", "inference.networking.k8s.io/engine-type": "vllm"}, "sglang", ""),
        (
            {"inference.networking.k8s.io/engine-type": "vllm", "topology.kubernetes.io/zone": "a"},
            "vllm",
            "a",
        ),
        (None, "", ""),
    ],
)
def test_labels_name_engine_and_zone(labels: dict[str, str] | None, engine: str, zone: str) -> None:
    labelled = pod()
    labelled["metadata"]["labels"] = labels
    found = endpoint_of(labelled, (8000,), NOW)
    assert found is not None
    assert (found.engine, found.zone, found.labels) == (engine, zone, labels or {})


def test_a_clock_behind_the_servers_makes_no_negative_age() -> None:
    found = endpoint_of(pod(conditions=conditions("True", changed="2026-01-01T00:02:00Z")), (1,), NOW)
    assert found is not None
    assert found.phase_age == 0
