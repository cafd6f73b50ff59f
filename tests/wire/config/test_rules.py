from typing import Annotated

import pytest
from pydantic import AfterValidator, ValidationError

from services.wire.config.field_types import Kind
from services.wire.config.rules import Finding, Rule, findings

EVEN = Rule("even", "must be {even}", lambda number: number % 2 == 0)


class Pair(Kind):
    first: Annotated[int, AfterValidator(EVEN)]
    second: Annotated[int | None, AfterValidator(EVEN.if_given)] = None


def test_a_broken_rule_reads_as_its_name_and_clause() -> None:
    with pytest.raises(ValidationError) as refused:
        Pair(first=1, second=3)
    assert list(findings(refused.value)) == [
        Finding("first", "1", "even: must be {even}"),
        Finding("second", "3", "even: must be {even}"),
    ]
    assert str(Finding("first", "1", str(EVEN))) == "first: 1: even: must be {even}"


def test_a_kept_rule_returns_the_value_and_nothing_given_is_no_break() -> None:
    assert Pair(first=2) == Pair(first=2, second=None)
    assert EVEN(4) == EVEN.if_given(4) == 4
