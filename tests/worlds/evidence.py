"""Evidence as a good tour leaves it, one second a unit, for tests that plant a violation in it."""

from services.core.fleet import HealthState
from services.core.units import Duration, Instant, seconds
from services.worlds.claims import Death, Dispatch, Sighting
from services.worlds.load import Sample, Shape

DEAD = frozenset({"us-1", "us-2"})
ALIVE = ("eu-1", "ap-1")
SURVIVORS = ("eu", "ap")
STREAM = Shape("stream", "large", stream=True, max_tokens=8, think=Duration(0))
WHOLE = Shape("whole", "large", stream=False, max_tokens=8, think=Duration(0))


def at(second: float) -> Instant:
    return Instant(seconds(second))


DEATH = Death(DEAD, killed_at=at(10), dead_at=at(10.1), until=at(20))


def sample(
    sent: float,
    ended: float,
    *,
    door: str = "eu",
    cluster: str = "eu-1",
    shape: Shape = WHOLE,
    first: float | None = None,
    fault: str = "",
    status: int = 200,
    request: str = "",
) -> Sample:
    begun = ended if first is None else first
    return Sample(door, shape, 1000, at(sent), at(begun), at(ended), status, cluster, request, fault)


def dispatch(
    sent: float,
    ended: float,
    cluster: str,
    *,
    router: str = "eu",
    request: str = "",
    number: int = 1,
    redispatch: bool = False,
    first: float | None = None,
    stream: bool = False,
) -> Dispatch:
    return Dispatch(
        router,
        cluster,
        "large",
        request,
        stream,
        number,
        redispatch,
        at(sent),
        at(ended),
        None if first is None else at(first),
    )


def sighting(
    second: float, state: HealthState, cluster: str, *, router: str = "eu", heard: float | None = None
) -> Sighting:
    return Sighting(at(second), router, cluster, state, at(second if heard is None else heard))
