from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from services.simulator.lora_slots import LoraSlots


def test_the_base_model_needs_no_slot() -> None:
    slots = LoraSlots(0)
    assert slots.has_room("")
    assert not slots.acquire("")
    slots.release("")
    assert not slots.has_room("a")
    assert slots.resident == ()


def test_an_adapter_is_loaded_once_and_stays_until_its_slot_is_needed() -> None:
    slots = LoraSlots(2)
    assert slots.acquire("a")
    assert not slots.acquire("a")
    slots.release("a")
    slots.release("a")
    assert (slots.running, slots.resident) == ((), ("a",))
    assert not slots.acquire("a")


def test_an_adapter_in_use_is_never_displaced() -> None:
    slots = LoraSlots(1)
    slots.acquire("a")
    assert not slots.has_room("b")
    assert slots.has_room("a")
    slots.release("a")
    assert slots.has_room("b")
    assert slots.acquire("b")
    assert slots.resident == ("b",)


def test_the_longest_idle_adapter_makes_way() -> None:
    slots = LoraSlots(2)
    for name in ("a", "b"):
        slots.acquire(name)
        slots.release(name)
    slots.acquire("a")
    slots.release("a")
    slots.acquire("c")
    assert set(slots.resident) == {"a", "c"}


@given(st.integers(1, 3), st.lists(st.tuples(st.sampled_from(["", "a", "b", "c", "d"]), st.booleans())))
def test_slots_are_never_more_than_there_are(capacity: int, steps: list[tuple[str, bool]]) -> None:
    """Invariant: residents fit the slots, and exactly the adapters with users count as running."""
    slots = LoraSlots(capacity)
    users: Counter[str] = Counter()
    for adapter, leaves in steps:
        if leaves and users[adapter]:
            slots.release(adapter)
            users[adapter] -= 1
        elif slots.has_room(adapter):
            slots.acquire(adapter)
            users[adapter] += 1
        assert len(slots.resident) <= capacity
        assert set(slots.running) == {name for name, count in users.items() if count and name}
        assert set(slots.running) <= set(slots.resident)
