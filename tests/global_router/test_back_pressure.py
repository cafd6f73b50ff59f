"""429s: per model and band, for a bounded time, and never ill health."""

from services.core.inference import ModelName
from services.core.outcomes import DropReason
from services.core.units import Instant, ms, seconds
from services.global_router.back_pressure import SPAN_MAX, BackPressure

NOW = Instant(1)
ILL = {"us-a": DropReason.NO_HEALTHY_CLUSTER}


M = ModelName("m")


def test_only_the_model_and_band_that_was_refused_stay_away() -> None:
    pressure = BackPressure()
    pressure.note("eu-a", M, 0, None, NOW)
    assert pressure.any
    assert pressure.merged(ILL, M, 0, NOW) == {"eu-a": DropReason.SATURATED, **ILL}
    assert pressure.merged(ILL, ModelName("other"), 0, NOW) == ILL
    assert pressure.merged(ILL, M, -1, NOW) == ILL


def test_it_ends_after_the_wish_which_is_bounded() -> None:
    pressure = BackPressure()
    pressure.note("eu-a", M, 0, ms(200), NOW)
    pressure.note("eu-b", M, 0, seconds(3600), NOW)
    assert set(pressure.merged({}, M, 0, Instant(NOW + ms(200)))) == {"eu-b"}
    assert pressure.merged(ILL, M, 0, Instant(NOW + SPAN_MAX)) is ILL
    assert not pressure.any


def test_ill_health_is_the_graver_reason() -> None:
    pressure = BackPressure()
    pressure.note("us-a", M, 0, None, NOW)
    assert pressure.merged(ILL, M, 0, NOW) == ILL


def test_who_cannot_serve_stays_away_for_its_own_reason() -> None:
    pressure = BackPressure()
    pressure.note("eu-a", M, 0, None, NOW, DropReason.NO_HEALTHY_CLUSTER)
    assert pressure.merged({}, M, 0, NOW) == {"eu-a": DropReason.NO_HEALTHY_CLUSTER}
