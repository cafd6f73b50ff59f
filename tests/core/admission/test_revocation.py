"""Whom to revoke, how many at once, and when again."""

from services.core.admission.revocation import Revocations
from services.core.units import ms
from tests.core.admission.shapes import at, queued


def book_of(*priorities: int) -> tuple[Revocations, list[int]]:
    book = Revocations()
    for number, priority in enumerate(priorities, 1):
        book.sent(queued(number, priority=priority))
    return book, list(range(1, len(priorities) + 1))


def revoked(book: Revocations, wanted: int, second: float) -> list[int]:
    return [ticket.sequence for ticket in book.revoke(wanted, at(second))]


def test_the_lowest_priority_goes_first_and_the_newest_of_it() -> None:
    book, _ = book_of(-1, -5, -5, -1)
    assert revoked(book, 9, 0) == [3, 2]
    assert (book.pending, book.issued) == (2, 2)


def test_no_more_than_wanted_and_no_more_than_there_are() -> None:
    assert revoked(book_of(-1, -1)[0], 1, 0) == [2]
    assert revoked(book_of(-1)[0], 2, 0) == [1]
    assert revoked(Revocations(), 2, 0) == []


def test_the_next_decision_waits_for_the_ends_and_then_for_the_grace() -> None:
    book = Revocations()
    tickets = [queued(number, priority=-1) for number in range(1, 6)]
    for ticket in tickets:
        book.sent(ticket)
    assert revoked(book, 2, 0) == [5, 4]
    assert book.next_deadline(at(0)) == at(10)
    assert revoked(book, 2, 1) == []
    assert book.ended(tickets[4], at(1)) == ms(1000)
    assert revoked(book, 2, 2) == []
    assert book.ended(tickets[3], at(2)) == ms(2000)
    assert book.next_deadline(at(2)) == at(2.5)
    assert revoked(book, 2, 2.4) == []
    assert revoked(book, 2, 2.5) == [3, 2]
    assert book.confirmed == 2


def test_an_end_that_does_not_come_is_given_up() -> None:
    book, _ = book_of(-1, -1, -1)
    assert revoked(book, 2, 0) == [3, 2]
    assert revoked(book, 2, 9.9) == []
    assert revoked(book, 2, 10) == [1]
    assert (book.unconfirmed, book.pending) == (2, 1)


def test_what_has_begun_or_ended_is_not_revoked() -> None:
    book = Revocations()
    begun, ended, left = (queued(number, priority=-1) for number in (1, 2, 3))
    for ticket in (begun, ended, left):
        book.sent(ticket)
    book.kept(begun)
    assert book.ended(ended, at(0)) is None
    assert revoked(book, 2, 1) == [3]
    book.kept(begun)
    assert book.ended(left, at(2)) == ms(1000)
    assert book.next_deadline(at(2)) is None
