"""What flow control shows of itself."""

from services.core.admission.figures import BandFigures, LaneFigures, PoolFigures, QueueFigures
from services.core.admission.flow_controller import FlowController
from services.core.admission.settings import BandSettings, FlowControlSettings
from tests.core.admission.shapes import at, ticket

BAND = BandSettings(max_requests=10, max_bytes=1000)


def test_figures_of_an_idle_controller_are_empty() -> None:
    figures = FlowController(FlowControlSettings()).figures()
    assert (figures.queues, figures.lanes, figures.bands, figures.pools) == ((), (), (), ())
    assert figures.global_capacity_utilization_requests == 0.0


def test_figures_of_what_waits() -> None:
    settings = FlowControlSettings(
        max_requests=5,
        max_bytes=500,
        default_priority_band=BAND,
        default_negative_priority_band=BAND,
        enable_eviction=True,
    )
    controller = FlowController(settings)
    for name, flow, size in (("a", "x", 100), ("b", "y", 50), ("c", "x", 25)):
        controller.offer(ticket(name, flow=flow, size=size), 1.0, at(0))
    controller.offer(ticket("d", priority=-1), 0.5, at(0))
    gone = ticket("e")
    controller.offer(gone, 1.0, at(0))
    controller.cancel(gone, at(0))
    figures = controller.figures()
    assert figures.queues == (
        QueueFigures("acme", -1, "llama", 1, 0),
        QueueFigures("x", 0, "llama", 2, 125),
        QueueFigures("y", 0, "llama", 1, 50),
    )
    assert figures.lanes == (
        LaneFigures("llama", 0, (("Dispatched", 0), ("EvictedContextCancelled", 1))),
        LaneFigures("llama", -1, (("Dispatched", 0),)),
    )
    assert figures.bands == (BandFigures(-1, 0.1, 0.0), BandFigures(0, 0.3, 0.175))
    assert figures.pools == (PoolFigures("llama", 0, 0, 0, 0, 3),)
    assert figures.global_capacity_utilization_requests == 0.8
    assert figures.global_capacity_utilization_bytes == 0.35


def test_nothing_is_to_be_reclaimed_where_eviction_is_off() -> None:
    controller = FlowController(FlowControlSettings())
    controller.offer(ticket(), 1.0, at(0))
    assert controller.figures().pools[0].reclaim_target == 0
