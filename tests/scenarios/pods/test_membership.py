"""Random histories of a pool: what the table says of its members is all there is to know."""

from hypothesis import given
from hypothesis import strategies as st

from services.core.pods.discovered import DiscoveredEndpoint, MembershipEffect, PodAdded, PodRemoved
from services.core.pods.table import PodTable
from services.core.units import Instant, seconds


def at(second: float) -> Instant:
    return Instant(seconds(second))


@given(st.lists(st.dictionaries(st.sampled_from("abcde"), st.sampled_from(["1", "2"])), max_size=12))
def test_effects_alone_tell_who_is_there(sets: list[dict[str, str]]) -> None:
    """Invariant: whoever applies the effects knows the declared set, and a kept pod keeps its row."""
    table = PodTable([], at(0))
    known: set[str] = set()
    for now, declared in enumerate(sets):
        rows = {pod.id: pod for pod in table}
        effects = table.set_pods(
            "pool", [DiscoveredEndpoint(name, host, (8000,)) for name, host in declared.items()], at(now)
        )
        for effect in effects:
            assert isinstance(effect, MembershipEffect)
            if isinstance(effect, PodAdded):
                known.add(effect.pod)
            elif isinstance(effect, PodRemoved):
                known.remove(effect.pod)
        assert known == declared.keys() == {pod.id for pod in table}
        for pod in table:
            old = rows.get(pod.id)
            assert old is None or (old is pod) == (old.address == pod.address)
