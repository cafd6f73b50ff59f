import pytest

from services.core.fleet import LoadReport, PoolReport
from services.core.health.loads import NO_LOAD, ClusterLoad, faded, load_of, strained
from services.core.inference import ModelName
from tests.core.health.samples import MODEL, POLICY, pool, report

OTHER = ModelName("qwen")


def load(*pools: PoolReport) -> ClusterLoad:
    return load_of(report("a", 1, pools=pools))


def test_pools_of_one_model_are_summed_and_averaged_over_ready_endpoints() -> None:
    first = pool(ready=1, total=2, waiting=3, running=4, capacity_requests=8, kv_use_mean=0.2, saturation=0.4)
    second = pool(
        ready=3, total=3, waiting=1, running=2, capacity_requests=16, kv_use_mean=0.6, saturation=0.8
    )
    whole = load(first, second).by_model[MODEL]
    assert (whole.ready, whole.total) == (4, 5)
    assert (whole.waiting, whole.running, whole.capacity_requests) == (4, 6, 24)
    assert whole.kv_use == pytest.approx(0.5)
    assert whole.saturation == pytest.approx(0.7)


def test_models_are_told_apart_and_the_whole_is_all_of_them() -> None:
    both = load(pool(waiting=1), pool(OTHER, waiting=5, resident_adapters=("x",), waiting_adapters=("y",)))
    assert both.whole.waiting == 6
    assert both.by_model[MODEL].waiting == 1
    assert both.by_model[OTHER].waiting == 5
    assert both.by_model[OTHER].active_adapters == {"x"}
    assert both.by_model[OTHER].waiting_adapters == {"y"}


def test_unknown_is_never_zero() -> None:
    """A sum with an unknown part is unknown; a mean is over the parts that are known and ready."""
    whole = load(pool(waiting=1, kv_use_mean=0.5), pool(), pool(ready=0, kv_use_mean=0.9)).whole
    assert whole.waiting is None
    assert whole.kv_use == 0.5
    assert whole.saturation is None


def test_draining_and_empty_pools_do_not_serve() -> None:
    some = load(pool(), pool(OTHER, draining=True), pool(ModelName("empty"), ready=0, total=0))
    assert set(some.by_model) == {MODEL}
    assert (some.whole.ready, some.whole.total) == (2, 2)
    nothing = load(pool(draining=True))
    assert nothing.by_model == {}
    assert (nothing.whole.ready, nothing.whole.total) == (0, 0)


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (pool(saturation=0.99), False),
        (pool(saturation=1.0), True),
        (pool(ready=70, total=100), True),
        (pool(ready=71, total=100), False),
        (pool(), False),
    ],
)
def test_strained_is_saturated_or_too_few_ready(sample: PoolReport, expected: bool) -> None:
    assert strained(load(sample), POLICY) is expected


def test_a_fresh_load_is_the_same_object() -> None:
    fresh = load(pool(waiting=1))
    assert faded(fresh, 1.0) is fresh


def test_a_fading_load_keeps_its_measures_until_they_are_unknown() -> None:
    fresh = load(pool(waiting=1, capacity_requests=8, saturation=0.5))
    half = faded(fresh, 0.5)
    assert (half.whole.waiting, half.whole.confidence) == (1, 0.5)
    gone = faded(fresh, 0.0)
    assert gone.by_model[MODEL] == LoadReport(ready=2, total=2, capacity_requests=8, confidence=0.0)


def test_nothing_known_is_not_nothing_ready() -> None:
    assert NO_LOAD.whole.ready == 1
    assert faded(NO_LOAD, 0.0).whole == NO_LOAD.whole
