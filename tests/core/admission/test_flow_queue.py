"""Ordered queues: the three orders, leaving from the middle, memory that follows the living."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.admission.flow_queue import SWEEP_FROM, Key, OrderedQueue, by_age, by_deadline, by_slo
from services.core.admission.tickets import Stage, Ticket
from tests.core.admission.shapes import queued


def drain(queue: OrderedQueue) -> list[str]:
    names = []
    while (ticket := queue.first()) is not None:
        names.append(ticket.request_id)
        leave(queue, ticket)
    return names


def leave(queue: OrderedQueue, ticket: Ticket) -> None:
    ticket.stage = Stage.ENDED
    queue.left()


@pytest.mark.parametrize(
    ("key", "order"), [(by_age, ["a", "b", "c"]), (by_deadline, ["b", "c", "a"]), (by_slo, ["c", "b", "a"])]
)
def test_order(key: Key, order: list[str]) -> None:
    queue = OrderedQueue(key)
    for ticket in (queued(1, "a", ttl=50), queued(2, "b", ttl=10), queued(3, "c", ttl=30, slo=5)):
        queue.push(ticket)
    assert drain(queue) == order


def test_equals_go_by_age() -> None:
    queue = OrderedQueue(by_deadline)
    for number in (2, 1, 3):
        queue.push(queued(number, str(number)))
    assert drain(queue) == ["1", "2", "3"]


def test_an_empty_queue_has_no_first() -> None:
    queue = OrderedQueue(by_age)
    assert queue.first() is None
    assert len(queue) == 0


def test_those_who_left_are_swept_before_they_outnumber_the_living() -> None:
    queue = OrderedQueue(by_age)
    tickets = [queued(number, str(number)) for number in range(100)]
    for ticket in tickets:
        queue.push(ticket)
    for ticket in tickets[10:]:
        leave(queue, ticket)
    assert len(queue._heap) <= 2 * 10 + SWEEP_FROM
    assert drain(queue) == [str(number) for number in range(10)]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 200)), max_size=300))
def test_memory_follows_the_living(steps: list[tuple[bool, int]]) -> None:
    """Entries never exceed twice those that wait plus a constant, whoever leaves in whatever order."""
    queue, living = OrderedQueue(by_deadline), list[Ticket]()
    for number, (arrives, choice) in enumerate(steps):
        if arrives or not living:
            living.append(queued(number, ttl=1 + choice % 7))
            queue.push(living[-1])
        else:
            leave(queue, living.pop(choice % len(living)))
        assert len(queue) == len(living)
        assert len(queue._heap) <= 2 * len(living) + SWEEP_FROM + 1
    first = queue.first()
    assert first is (min(living, key=lambda ticket: (ticket.deadline, ticket.sequence)) if living else None)
