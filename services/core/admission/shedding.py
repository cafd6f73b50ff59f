"""Shedding without a queue: the field's legacy admission and its probabilistic admitter.

Both look at sheddable requests (priority below 0) only, and at one number, the pool's saturation. No randomness:
the point is hashed from the request id, so that a refusal can be replayed. Apart from the `FlowController`,
which keeps requests instead of refusing them.
"""

from dataclasses import dataclass

from services.core.scheduling.draws import fraction, words

_PURPOSE = "admission/"
"""Hashed with the id, because the points of the id alone are used up by the scheduler's draws."""


def legacy_admits(priority: int, saturation: float | None) -> bool:
    """Whether a request is let in while flow control is off; `saturation` None (nobody there) refuses none."""
    return priority >= 0 or saturation is None or saturation < 1.0


@dataclass(frozen=True, slots=True)
class ProbabilisticAdmitter:
    """Refuses a sheddable request with probability min(saturation^power x k, 1).

    With the defaults 2.3 % at a saturation of 0.15 and everything from about 0.32 on: long before a queue forms.
    """

    power: float = 5.0
    k: float = 300.0

    def __post_init__(self) -> None:
        """Refuse parameters under which the probability would not rise with saturation."""
        if self.power <= 0 or self.k <= 0:
            raise ValueError("probabilistic-admitter: power and k must be above 0")

    def admits(self, request_id: str, priority: int, saturation: float | None) -> bool:
        """Whether a request is let in; an empty pool (`saturation` None) refuses none, for it is not saturated."""
        if priority >= 0 or saturation is None:
            return True
        if saturation >= self.k ** (-1 / self.power):
            return False
        refused: float = saturation**self.power * self.k
        return fraction(words(_PURPOSE + request_id)[0]) >= refused
