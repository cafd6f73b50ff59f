from services.core.models.objectives import ObjectiveTable


def test_an_objective_gives_its_priority_and_an_absent_or_unknown_one_the_default() -> None:
    table = ObjectiveTable({"urgent": 10, "batch": -5, "plain": 0})
    assert [table.priority(name) for name in ("urgent", "batch", "plain", "no-such", None)] == [
        10,
        -5,
        0,
        0,
        0,
    ]
    assert ObjectiveTable({}, default=-1).priority(None) == -1
    assert ObjectiveTable({"urgent": 10}, default=-1).priority("no-such") == -1


def test_a_priority_is_no_higher_than_the_ceiling() -> None:
    table = ObjectiveTable({"urgent": 10, "batch": -5})
    assert table.capped("urgent", 3) == 3
    assert table.capped("urgent", 20) == 10
    assert table.capped("batch", 3) == -5
    assert table.capped(None, -2) == -2
