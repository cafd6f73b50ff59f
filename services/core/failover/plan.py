"""The plan of one request: where it may go, in order, and whether it may be sent twice.

Values only, made once from the decision. Apart from the machine that follows it, because the life
cycle makes plans without knowing the machine's states.
"""

import enum
from collections.abc import Mapping, Sequence

from services.core.inference import TrafficClass
from services.core.units import Instant
from services.core.values import value


class Replay(enum.Enum):
    """Whether the request may be sent a second time.

    `ALWAYS`: replayable and its body is kept. `BEFORE_BODY`: not replayable, so only while no byte of
    the body had been sent. `NEVER`: its body is too large to keep, one attempt.
    """

    ALWAYS = "always"
    BEFORE_BODY = "before_body"
    NEVER = "never"


@value
class Plan:
    """Where a request may go, in order: the decision's target and fallbacks, all inside residency.

    `regions` maps a cluster to its region (`Prepared.regions`). `deadline` is the client's own.
    """

    targets: Sequence[str]
    regions: Mapping[str, str]
    traffic_class: TrafficClass = TrafficClass.INTERACTIVE
    stream: bool = False
    replay: Replay = Replay.ALWAYS
    deadline: Instant | None = None
