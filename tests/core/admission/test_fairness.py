"""Who is next within a band: max-min on tokens, round-robin, and the strict order over all."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from services.core.admission.fairness import FLOWS_MAX, SWEEP_EVERY, FairQueue
from services.core.admission.settings import Fairness, Ordering
from services.core.admission.tickets import Stage, Ticket
from tests.core.admission.shapes import queued


class Feed:
    """Numbers tickets as the controller does."""

    def __init__(self, fairness: Fairness = Fairness.MAX_MIN, ordering: Ordering = Ordering.FCFS) -> None:
        self.queue = FairQueue(fairness, ordering)
        self.sequence = 0

    def push(self, flow: str, tokens: int = 1, **fields: object) -> Ticket:
        self.sequence += 1
        ticket = queued(self.sequence, f"{flow}{self.sequence}", flow=flow, tokens=tokens, **fields)
        self.queue.push(ticket)
        return ticket

    def serve(self) -> Ticket:
        ticket = self.queue.first()
        assert ticket is not None
        ticket.stage = Stage.DISPATCHED
        self.queue.served(ticket)
        return ticket

    def leave(self, ticket: Ticket) -> None:
        ticket.stage = Stage.ENDED
        self.queue.left(ticket)

    def flows(self, count: int) -> str:
        return "".join(self.serve().flow for _ in range(count))


def test_tokens_are_shared_not_requests() -> None:
    feed = Feed()
    for _ in range(10):
        feed.push("a", 300)
        feed.push("b", 100)
    assert feed.flows(8) == "abbbabbb"


def test_round_robin_counts_requests() -> None:
    feed = Feed(Fairness.ROUND_ROBIN)
    for _ in range(4):
        feed.push("a", 300)
        feed.push("b", 100)
    assert feed.flows(8) == "abababab"


def test_the_strict_order_knows_no_flows() -> None:
    feed = Feed(Fairness.GLOBAL_STRICT, Ordering.EDF)
    for ttl in (9, 8, 7):
        feed.push("a", ttl=ttl)
    feed.push("b", ttl=8.5)
    assert feed.flows(4) == "aaba"


def test_a_flow_that_was_away_does_not_catch_up() -> None:
    feed = Feed()
    for _ in range(20):
        feed.push("a", 10)
    feed.flows(10)
    for _ in range(4):
        feed.push("b", 10)
    assert Counter(feed.flows(8)) == {"a": 4, "b": 4}


def test_a_flow_that_had_its_share_does_not_gain_by_coming_back() -> None:
    feed = Feed()
    for _ in range(9):
        feed.push("a", 10)
    feed.push("b", 1000)
    assert feed.flows(3) == "aba"
    feed.push("b", 10)
    assert feed.flows(8) == "aaaaaaab"


def test_who_leaves_is_passed_over_and_an_empty_queue_begins_anew() -> None:
    feed = Feed()
    gone, stays = feed.push("a"), feed.push("b")
    feed.leave(gone)
    assert len(feed.queue) == 1
    assert feed.serve() is stays
    assert feed.queue.first() is None
    assert feed.queue.flows == 0


def test_a_flow_whose_entry_surfaced_while_it_was_away_waits_again() -> None:
    feed = Feed()
    gone = feed.push("a")
    feed.push("b")
    feed.push("b")
    feed.leave(gone)
    assert feed.flows(1) == "b"
    feed.push("a")
    assert feed.flows(2) == "ab"


def test_f178_a_fresh_name_per_request_neither_grows_memory_nor_starves_a_neighbour() -> None:
    """However many names come, a flow that waits is served after at most its own cost in tokens of each told apart."""
    feed = Feed()
    feed.push("victim", 2)
    feed.push("victim", 2)
    assert feed.serve().flow == "victim"
    served = 0
    names = iter(range(10 * FLOWS_MAX))
    while True:
        feed.push(f"fresh{next(names)}", 1)
        feed.push(f"fresh{next(names)}", 1)
        served += 1
        assert feed.queue.flows <= FLOWS_MAX + 1
        if feed.serve().flow == "victim":
            break
    assert served <= 2 * (FLOWS_MAX + 2)


def test_names_are_told_apart_again_once_others_are_forgotten() -> None:
    feed = Feed()
    crowd = [feed.push(f"f{number}") for number in range(FLOWS_MAX)]
    anchor = feed.push("late")
    for ticket in crowd:
        feed.leave(ticket)
    assert feed.queue.flows == FLOWS_MAX + 1
    for number in range(SWEEP_EVERY):
        feed.push(f"g{number}")
    assert feed.queue.flows < FLOWS_MAX
    assert feed.serve() is anchor


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50)), min_size=40, max_size=80),
    st.integers(5, 40),
)
def test_flows_that_wait_differ_by_at_most_one_request_of_each(
    work: list[tuple[str, int]], take: int
) -> None:
    """Over any span in which two flows wait throughout, their tokens differ by at most one request of each."""
    feed = Feed()
    left: Counter[str] = Counter()
    for flow, tokens in work:
        feed.push(flow, tokens)
        left[flow] += 1
    had: Counter[str] = Counter()
    for _ in range(take):
        ticket = feed.serve()
        had[ticket.flow] += ticket.tokens
        left[ticket.flow] -= 1
        waiting = [flow for flow in left if left[flow] > 0]
        assert all(abs(had[one] - had[other]) <= 100 for one in waiting for other in waiting)


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(1, 9)), min_size=1, max_size=60))
def test_equal_inputs_have_equal_outputs_and_everybody_is_served(work: list[tuple[str, int]]) -> None:
    """The order is a function of what came, and no ticket is lost or served twice."""
    orders = []
    for _ in range(2):
        feed = Feed()
        for flow, tokens in work:
            feed.push(flow, tokens)
        orders.append([feed.serve().sequence for _ in work])
        assert feed.queue.first() is None
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == list(range(1, len(work) + 1))
