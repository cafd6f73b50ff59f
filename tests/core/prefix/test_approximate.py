from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from services.core.prefix.approximate import DEFAULT_POD_BLOCKS, ENTRY_BYTES, ApproximateIndex
from services.core.prefix.blocks import SLICE_BLOCKS, complete

PODS = ("a", "b", "c")
prompts = st.lists(st.integers(1, 12), min_size=1, max_size=6).map(
    # Blocks of one prompt are a chain: each key covers what is before it.
    lambda words: [hash(tuple(words[: end + 1])) for end in range(len(words))]
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("record"), st.sampled_from(PODS), prompts),
        st.tuples(st.just("forget"), st.sampled_from(PODS), st.just([])),
        st.tuples(st.just("sweep"), st.just(""), st.just([])),
        st.tuples(st.just("resize"), st.sampled_from(PODS), prompts),
        st.tuples(st.just("match"), st.just(""), prompts),
    ),
    max_size=40,
)


class NaiveIndex:
    """Each pod a least-recently-used list, each match a walk per pod."""

    def __init__(self) -> None:
        self.held: dict[str, OrderedDict[int, None]] = {}
        self.capacity: dict[str, int] = {}

    def record(self, pod: str, prompt: list[int]) -> None:
        order = self.held.setdefault(pod, OrderedDict())
        for key in reversed(prompt):
            if key in order:
                order.move_to_end(key)
                continue
            for _ in range(2):
                if len(order) >= self.capacity.get(pod, DEFAULT_POD_BLOCKS):
                    order.popitem(last=False)
            order[key] = None

    def match(self, prompt: list[int]) -> dict[str, int]:
        found = {}
        for pod, order in self.held.items():
            depth = next((at for at, key in enumerate(prompt) if key not in order), len(prompt))
            if depth:
                found[pod] = depth
        return found


@given(steps)
def test_it_says_what_a_list_per_pod_says(steps: list[tuple[str, str, list[int]]]) -> None:
    """Matches, sizes and capacities are those of a naive least-recently-used list per pod."""
    index, naive = ApproximateIndex(), NaiveIndex()
    for what, pod, prompt in steps:
        if what == "record":
            complete(index.record(pod, prompt))
            naive.record(pod, prompt)
        elif what == "forget":
            index.forget(pod)
            naive.held.pop(pod, None)
            naive.capacity.pop(pod, None)
        elif what == "sweep":
            index.sweep()
        elif what == "resize":
            index.resize(pod, len(prompt))
            naive.capacity[pod] = len(prompt)
        else:
            assert index.match(prompt) == naive.match(prompt)
        assert {pod: index.blocks_of(pod) for pod in PODS} == {
            pod: len(naive.held.get(pod, ())) for pod in PODS
        }
    while index.sweep():
        pass
    assert index.entries == sum(len(order) for order in naive.held.values())
    assert index.keys == len({key for order in naive.held.values() for key in order})
    assert index.bytes_estimate == index.entries * ENTRY_BYTES


@given(st.lists(st.tuples(st.sampled_from(PODS), prompts, st.booleans()), max_size=60), st.integers(1, 8))
def test_all_pods_together_never_hold_more_than_the_bound(
    records: list[tuple[str, list[int], bool]], max_blocks: int
) -> None:
    """After each record there are at most `max_blocks` entries, forgotten pods included."""
    index = ApproximateIndex(max_blocks)
    for pod, prompt, forget in records:
        complete(index.record(pod, prompt))
        assert index.entries <= max_blocks
        assert index.keys <= index.entries
        if forget:
            index.forget(pod)
            assert index.match(prompt).get(pod) is None


def test_a_full_index_takes_from_the_largest_until_each_has_its_share() -> None:
    index = ApproximateIndex(max_blocks=100)
    complete(index.record("a", range(100)))
    for start in (1000, 2000):
        complete(index.record("b", range(start, start + 50)))
    assert (index.blocks_of("a"), index.blocks_of("b")) == (50, 50)
    assert index.match(range(2000, 2050)) == {"b": 50}


def test_the_tail_of_a_prompt_is_forgotten_before_its_head() -> None:
    index = ApproximateIndex()
    index.resize("a", 10)
    complete(index.record("a", range(8)))
    complete(index.record("a", range(100, 106)))
    assert index.match(range(8)) == {"a": 4}
    assert index.match(range(100, 106)) == {"a": 6}
    assert index.match([]) == {}


def test_a_long_prompt_is_recorded_and_a_large_pod_swept_in_slices() -> None:
    index = ApproximateIndex()
    prompt = list(range(2 * SLICE_BLOCKS + 10))
    assert sum(1 for _ in index.record("a", prompt)) == 3
    assert index.match(prompt) == {"a": len(prompt)}
    index.forget("a")
    assert index.match(prompt) == {}
    assert [index.sweep() for _ in range(4)] == [True, True, False, False]
    assert (index.entries, index.keys) == (0, 0)


def test_a_forgotten_pods_bit_is_nobody_elses_before_it_is_swept() -> None:
    index = ApproximateIndex()
    complete(index.record("a", [1, 2]))
    index.forget("a")
    index.forget("never seen")
    complete(index.record("b", [9]))
    assert index.match([1, 2]) == {}
    index.sweep()
    complete(index.record("c", [3]))
    assert index.match([1, 2]) == {}


def test_unique_prompts_for_ever_leave_the_size_as_it_is() -> None:
    index = ApproximateIndex(max_blocks=400)
    for pod in PODS:
        index.resize(pod, 100)
    sizes = set()
    for number in range(300):
        complete(index.record(PODS[number % 3], range(number * 100, number * 100 + 20)))
        if number >= 15:
            sizes.add((index.entries, index.keys))
    assert sizes == {(300, 300)}
