"""Outcomes: the reasons are closed, their words are wire format."""

from services.core.inference import RequestId
from services.core.outcomes import DropReason, Explanation, Rejected, Routed


def test_reasons_are_unique_lower_case_words() -> None:
    values = [reason.value for reason in DropReason]
    assert len(set(values)) == len(values)
    assert all(value == value.lower() and value.replace("_", "").isalpha() for value in values)


def test_equal_decisions_are_equal_values() -> None:
    """Replay compares decisions, so they must compare by what they say."""
    explanation = Explanation(RequestId("r"), 1, 2, ())
    assert Routed("a", ("b",), explanation) == Routed("a", ("b",), Explanation(RequestId("r"), 1, 2, ()))
    assert Rejected(DropReason.DRAINED, "m", explanation) != Rejected(DropReason.SATURATED, "m", explanation)
