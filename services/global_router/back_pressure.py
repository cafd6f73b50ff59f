"""Back-pressure: who answered 429 or cannot serve, for which model and band, and until when it is left alone.

A full cluster is not an ill one, and neither is one whose pods lack a model: its health is untouched,
and other models and bands still go there. Apart from the view because each worker keeps its own, for a second or so at a time.
"""

from collections.abc import Mapping
from typing import Final

from services.core.inference import Band, ModelName, band_of
from services.core.outcomes import DropReason
from services.core.units import Duration, Instant, after, seconds

DEFAULT_SPAN: Final = seconds(1)
"""Without a wish of its own a full cluster is asked again after one report interval or two."""
SPAN_MAX: Final = seconds(10)
"""A longer wish outlives what anybody knows about a queue."""


class BackPressure:
    """The refusals of one worker, by (model, band) and cluster. The model is the policy's name, whatever alias was asked for."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: dict[tuple[ModelName, Band], dict[str, tuple[Instant, DropReason]]] = {}

    @property
    def any(self) -> bool:
        """Whether anybody is left alone at all; keeps the common case at one check."""
        return bool(self._until)

    def note(
        self,
        cluster: str,
        model: ModelName,
        priority: int,
        wish: Duration | None,
        now: Instant,
        reason: DropReason = DropReason.SATURATED,
    ) -> None:
        """`cluster` refused `model` at `priority` for `reason` and wishes to be left alone for `wish`."""
        span = DEFAULT_SPAN if wish is None else min(wish, SPAN_MAX)
        key = (model, band_of(priority))
        self._until.setdefault(key, {})[cluster] = (after(now, span), reason)

    def merged(
        self, excluded: Mapping[str, DropReason], model: ModelName, priority: int, now: Instant
    ) -> Mapping[str, DropReason]:
        """Return `excluded` with the clusters to leave alone for such a request; forgets what is over."""
        key = (model, band_of(priority))
        spans = self._until.get(key)
        if spans is None:
            return excluded
        for cluster in [cluster for cluster, (until, _) in spans.items() if until <= now]:
            del spans[cluster]
        if not spans:
            del self._until[key]
            return excluded
        return {**{cluster: reason for cluster, (_, reason) in spans.items()}, **excluded}
