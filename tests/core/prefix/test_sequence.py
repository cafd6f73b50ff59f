from hypothesis import given
from hypothesis import strategies as st

from services.core.prefix.sequence import REPLAY_COOLDOWN, Apply, Clear, EventSequence, Replay, Step
from services.core.units import Instant, seconds

T0 = Instant(seconds(100))


def applied(steps: list[Step[int]]) -> list[int]:
    return [step.batch for step in steps if isinstance(step, Apply)]


def test_batches_in_order_are_applied_as_they_come() -> None:
    sequence = EventSequence[int]()
    assert [sequence.live(number, number, T0) for number in range(3)] == [[Apply(0)], [Apply(1)], [Apply(2)]]
    assert (sequence.lost, sequence.replaying) == (0, False)


def test_a_gap_is_replayed_and_what_comes_meanwhile_waits() -> None:
    sequence = EventSequence[int]()
    sequence.live(0, 0, T0)
    assert sequence.live(3, 3, T0) == [Replay(1)]
    assert sequence.replaying
    assert sequence.live(4, 4, T0) == []
    assert sequence.replayed(0, 0) == []
    assert [applied(sequence.replayed(number, number)) for number in (1, 2, 3)] == [[1], [2], [3]]
    assert applied(sequence.replay_ended(T0)) == [4]
    assert applied(sequence.live(5, 5, T0)) == [5]
    assert sequence.lost == 0


def test_a_subscriber_that_comes_late_asks_for_the_beginning() -> None:
    sequence = EventSequence[int]()
    assert sequence.live(7, 7, T0) == [Replay(0)]
    # The publisher's history begins at 5: what was before is accepted as lost.
    assert applied(sequence.replayed(5, 5)) == [5]
    assert applied(sequence.replayed(6, 6)) == [6]
    assert applied(sequence.replay_ended(T0)) == [7]
    assert sequence.lost == 5


def test_what_the_replay_brought_already_is_not_applied_again_and_is_no_restart() -> None:
    sequence = EventSequence[int]()
    sequence.live(2, 2, T0)
    for number in range(6):
        sequence.replayed(number, number)
    assert sequence.replay_ended(T0) == []
    # Still in the subscription's queue when the replay overtook them.
    assert [sequence.live(number, number, T0) for number in (3, 4, 5)] == [[], [], []]
    assert sequence.live(6, 6, T0) == [Apply(6)]
    assert sequence.restarts == 0


def test_a_failed_replay_accepts_the_gap_and_none_follows_until_the_link_had_time() -> None:
    sequence = EventSequence[int]()
    sequence.live(0, 0, T0)
    assert sequence.live(2, 2, T0) == [Replay(1)]
    assert applied(sequence.replay_ended(T0)) == [2]
    assert sequence.lost == 1
    soon = Instant(T0 + REPLAY_COOLDOWN - 1)
    assert sequence.live(5, 5, soon) == [Apply(5)]
    assert sequence.lost == 3
    assert sequence.live(8, 8, Instant(T0 + REPLAY_COOLDOWN)) == [Replay(6)]


def test_a_number_that_goes_backwards_clears_the_publisher() -> None:
    sequence = EventSequence[int]()
    for number in range(5):
        sequence.live(number, number, T0)
    assert sequence.live(0, 100, T0) == [Clear(), Apply(100)]
    assert sequence.live(1, 101, T0) == [Apply(101)]
    assert sequence.restarts == 1
    # Begun anew, and its first batches were missed.
    assert sequence.live(1, 201, T0) == [Clear(), Replay(0)]
    # And once more, while that replay runs.
    assert sequence.live(0, 300, T0) == [Clear()]
    assert applied(sequence.replay_ended(T0)) == [300]
    assert sequence.restarts == 3


def test_what_waits_is_bounded_and_what_was_given_up_is_counted() -> None:
    sequence = EventSequence[int](held_batches=3)
    for number in range(10, 20):
        sequence.live(number, number, T0)
    assert applied(sequence.replay_ended(T0)) == [17, 18, 19]
    assert sequence.lost == 17


@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["live", "replay", "end"])), max_size=60),
    st.integers(1, 5),
)
def test_batches_are_applied_in_order_and_once(events: list[tuple[int, str]], held: int) -> None:
    """Between two clearings the numbers applied only grow, and every number up to the last is applied or lost."""
    sequence = EventSequence[int](held_batches=held)
    run: list[int] = []
    lost_before = 0
    for number, what in events:
        lost = sequence.lost
        if what == "live":
            steps = sequence.live(number, number, T0)
        elif what == "replay":
            steps = sequence.replayed(number, number)
        else:
            steps = sequence.replay_ended(T0)
        for step in steps:
            if isinstance(step, Clear):
                run = []
                lost_before = lost
            elif isinstance(step, Apply):
                assert not run or step.batch > run[-1]
                run.append(step.batch)
        if run:
            assert sequence.lost - lost_before == run[-1] + 1 - len(run)
