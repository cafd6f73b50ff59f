import pytest

from services.core.units import Instant, WallMs
from services.simulator.engine import Engine
from services.simulator.flavours import Flavour, page_of
from services.simulator.vllm_page import MetricNames
from tests.simulator.profiles import TINY
from tests.simulator.test_vllm_page import parsed


def rendered(flavour: Flavour, names: MetricNames, lines: int, ranks: int = 1) -> bytes:
    engines = [Engine(TINY, Instant(0), tallies=flavour.tallies()) for _ in range(ranks)]
    return page_of(flavour, names, "m", engines, lines).render(Instant(0), WallMs(0))


@pytest.mark.parametrize(
    ("flavour", "names", "has", "lacks"),
    [
        (Flavour.VLLM, MetricNames.CURRENT, "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        (Flavour.VLLM, MetricNames.OLD, "vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"),
        (Flavour.SGLANG, MetricNames.CURRENT, "sglang:token_usage", "vllm:kv_cache_usage_perc"),
    ],
)
def test_each_flavour_has_its_page(flavour: Flavour, names: MetricNames, has: str, lacks: str) -> None:
    shown = {name for name, _ in parsed(rendered(flavour, names, 0))}
    assert has in shown
    assert lacks not in shown


@pytest.mark.parametrize("flavour", list(Flavour))
def test_a_page_is_as_long_as_a_real_one_when_asked(flavour: Flavour) -> None:
    page = rendered(flavour, MetricNames.CURRENT, 1_500)
    assert 1_500 <= page.count(b"\n") <= 1_520
    assert parsed(page)


def test_many_ranks_make_a_page_long_by_themselves() -> None:
    page = rendered(Flavour.VLLM, MetricNames.CURRENT, 1_500, ranks=8)
    assert page.count(b"\n") > 1_500
    assert b"http_request" not in page


def test_a_flavour_has_its_own_buckets() -> None:
    assert Flavour.VLLM.tallies().time_to_first_token.bounds_s[0] == 0.001
    assert Flavour.SGLANG.tallies().time_to_first_token.bounds_s[0] == 0.1
