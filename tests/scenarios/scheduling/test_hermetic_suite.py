"""The golden picks of the llm-d router's hermetic suite (test/integration/epp), by the names of its rows.

Here the decision alone is asked; the same rows over the wire are the ext_proc door's.
"""

import pytest

from services.core.fleet import HealthState, LoadReport
from services.core.outcomes import Routed
from services.core.scheduling.decide import decide, explain
from services.core.scheduling.prepare import Prepared
from services.core.scheduling.profile import ENDPOINTS, Picker, Weighted, endpoint_profile
from services.core.scheduling.scorers.affinity import Lora, Prefix
from services.core.scheduling.scorers.load import KvUse, Queue
from services.core.scheduling.signals import Signals
from tests.core.scheduling.fleets import NOW, fleet, request
from tests.core.scheduling.pods import pod

ALL_WEIGHT_1 = endpoint_profile(
    scorers=tuple(Weighted(scorer) for scorer in (Queue(), KvUse(), Prefix(), Lora())), fallbacks=0
)
"""The configuration of the llm-d router's hermetic suite (testdata/datalayer-config.yaml)."""
T = "sql-lora-1fdg2"
HERMETIC = {
    "select lower queue and kv cache": (
        "my-model-12345",
        [(3, 0.2, ""), (0, 0.1, ""), (10, 0.2, "")],
        None,
        1,
    ),
    "select active lora, low queue": (
        T,
        [(0, 0.2, "foo,bar"), (0, 0.1, f"foo,{T}"), (10, 0.2, "foo,bar")],
        None,
        1,
    ),
    "select lora despite higher kv cache": (
        T,
        [(10, 0.2, "foo,bar"), (10, 0.4, f"foo,{T}"), (10, 0.3, "foo")],
        None,
        1,
    ),
    "do not shed requests by default": (
        T,
        [(6, 0.2, f"foo,bar,{T}"), (0, 0.85, "foo"), (10, 0.9, "foo")],
        None,
        0,
    ),
    "split body across chunks": (
        "sql-lora-1fdg3",
        [(4, 0.2, "foo,bar,sql-lora-1fdg3"), (4, 0.85, "foo,sql-lora-1fdg3")],
        None,
        0,
    ),
    "subsetting: select best from subset": (
        T,
        [(0, 0.2, "foo"), (0, 0.1, f"foo,{T}"), (10, 0.2, "foo")],
        (0, 1, 2),
        1,
    ),
    "subsetting: partial match": (T, [(0, 0.2, "foo"), (0, 0.1, f"foo,{T}"), (10, 0.2, "foo")], (2,), 2),
    "passthrough parser success": ("", [(3, 0.2, ""), (0, 0.1, ""), (10, 0.2, "")], None, 1),
}
"""(adapter asked for, pods as (queue, KV use, active adapters), subset, chosen pod); no pod has a free slot."""


def hermetic(pods: list[tuple[int, float, str]]) -> Prepared:
    loads = [
        LoadReport(
            waiting=queue,
            running=0,
            kv_use=kv_use,
            active_adapters=frozenset(filter(None, active.split(","))),
            max_adapters=0,
        )
        for queue, kv_use, active in pods
    ]
    return fleet(*(pod(f"p{n}", load) for n, load in enumerate(loads)), profile=ALL_WEIGHT_1)


@pytest.mark.parametrize("case", HERMETIC)
def test_the_fields_hermetic_table(case: str) -> None:
    adapter, pods, subset, expected = HERMETIC[case]
    among = None if subset is None else [f"p{place}" for place in subset]
    decision = decide(
        hermetic(pods), request(priority=2), NOW, signals=Signals(adapter=adapter or None), among=among
    )
    assert isinstance(decision, Routed)
    assert (decision.target, decision.fallbacks) == (f"p{expected}", ())


def test_the_scores_of_the_row_that_is_spelled_out() -> None:
    """`do not shed requests by default`: 2.2 against 1.15 against 0.1."""
    adapter, pods, _, _ = HERMETIC["do not shed requests by default"]
    told = explain(hermetic(pods), request(), NOW, signals=Signals(adapter=adapter))
    totals = [sum(score for _, score in verdict.scores) for verdict in told.explanation.verdicts]
    assert totals == pytest.approx([2.2, 1.15, 0.1])


def test_with_all_metrics_old_the_least_own_requests_decide() -> None:
    stale = [
        pod("looks_idle", LoadReport(waiting=0, kv_use=0.0), state=HealthState.STALE),
        pod("looks_busy", LoadReport(waiting=99, kv_use=0.99), state=HealthState.STALE),
    ]
    decision = decide(
        fleet(*stale, profile=ENDPOINTS), request(), NOW, in_flight={"looks_idle": 4, "looks_busy": 1}
    )
    assert isinstance(decision, Routed)
    assert (decision.target, decision.fallbacks, decision.explanation.panic) == (
        "looks_busy",
        ("looks_idle",),
        True,
    )


def test_the_same_request_before_the_same_endpoints_goes_to_the_same_one() -> None:
    for picker in (Picker.RANDOM, Picker.WEIGHTED_RANDOM, Picker.MAX_SCORE):
        prepared = fleet(*(pod(f"p{n}") for n in range(9)), profile=endpoint_profile(picker))
        first = [decide(prepared, request(number), NOW) for number in range(20)]
        assert first == [decide(prepared, request(number), NOW) for number in range(20)]
        assert len({d.target for d in first if isinstance(d, Routed)}) > 3
