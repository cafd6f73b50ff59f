from hypothesis import given
from hypothesis import strategies as st

from services.core.prefix.slots import Slots


@given(st.lists(st.tuples(st.sampled_from(["take", "retire", "release"]), st.sampled_from("abcd"))))
def test_no_two_names_ever_share_a_bit(steps: list[tuple[str, str]]) -> None:
    """A bit belongs to at most one name, counting those retired and not yet released."""
    slots = Slots()
    held: dict[str, int] = {}
    retired: list[int] = []
    for what, name in steps:
        if what == "take":
            held[name] = slots.take(name)
        elif what == "retire":
            bit = slots.retire(name)
            assert bit == held.pop(name, 0)
            if bit:
                retired.append(bit)
        elif retired:
            slots.release(retired.pop())
        bits = [*held.values(), *retired]
        assert len(set(bits)) == len(bits)
        assert all(bit.bit_count() == 1 for bit in bits)
        assert len(slots) == len(held)
        assert all((name in slots) == (name in held) for name in "abcd")
        assert all(slots.bit(name) == held.get(name, 0) for name in "abcd")
        assert sorted(slots.names(sum(held.values()))) == sorted(held)


def test_a_released_bit_is_used_again_before_a_new_one() -> None:
    slots = Slots()
    for name in ("a", "b", "c"):
        slots.take(name)
    slots.release(slots.retire("b"))
    assert slots.take("d") == 0b010
    assert slots.take("e") == 0b1000
    assert list(slots.names(0b1111)) == ["a", "d", "c", "e"]
