"""A ticket as it is made: new, unnumbered, and told apart from an equal one."""

from services.core.admission.tickets import Stage
from tests.core.admission.shapes import ticket


def test_a_ticket_begins_new_and_is_only_itself() -> None:
    one, other = ticket(), ticket()
    assert one.stage is Stage.NEW
    assert (one.sequence, one.enqueued_at, one.deadline) == (0, 0, 0)
    assert one != other
