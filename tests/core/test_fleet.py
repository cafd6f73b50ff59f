"""What is known about the fleet: the order of reports and the load of one model."""

from hypothesis import given
from hypothesis import strategies as st

from services.core.fleet import Candidate, LoadReport, ReportId
from services.core.inference import ModelName
from services.core.locality import Jurisdiction, Locality, Region

HERE = Locality(Region("eu-west"), Jurisdiction("eu"))


def test_a_newer_publisher_outranks_any_sequence() -> None:
    assert ReportId(2, 0) > ReportId(1, 999)
    assert ReportId(2, 1) > ReportId(2, 0)


@given(st.tuples(st.integers(), st.integers()), st.tuples(st.integers(), st.integers()))
def test_reports_are_ordered_lexicographically(first: tuple[int, int], second: tuple[int, int]) -> None:
    """Invariant: ReportId orders as the pair (epoch, sequence) does."""
    assert (ReportId(*first) < ReportId(*second)) is (first < second)


def test_the_load_of_a_model_is_its_own_where_it_is_told_apart() -> None:
    whole, own = LoadReport(ready=8), LoadReport(ready=2)
    candidate = Candidate("c", HERE, None, whole, loads={ModelName("a"): own})
    assert candidate.load_for(ModelName("a")) is own
    assert candidate.load_for(ModelName("b")) is whole


def test_what_is_not_measured_is_unknown_and_not_zero() -> None:
    load = LoadReport()
    assert load.waiting is load.running is load.kv_use is load.saturation is load.capacity_requests is None
