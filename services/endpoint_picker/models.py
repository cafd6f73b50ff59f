"""The names this picker serves, kept up with what is declared and with the adapters that pods report.

Resolving is `core/models`; here the table is made anew when adapters, rewrites or objectives change, which is
rare, so that a request finds it ready. Nothing here reads clocks or sockets.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from services.core.inference import ModelName
from services.core.models.rewrites import Rewrite
from services.core.models.routing import LearnedAdapter, ModelFault, ModelTable, PoolModels, ResolvedModel
from services.core.pods.table import PodTable


@dataclass(slots=True, eq=False)
class LiveModels:
    """The model table in force. `learn` is called from time to time, `rewrite` when rewrites change."""

    pools: Sequence[PoolModels]
    default_pool: str | None = None
    rewrites: tuple[Rewrite, ...] = ()
    _learned: frozenset[LearnedAdapter] = frozenset()
    _readings: int = -1
    _table: ModelTable = field(init=False)

    def __post_init__(self) -> None:
        """Make the first table. Raises ValueError for a default pool that is none of the pools."""
        self._make()

    def resolve(self, model: str, draw_by: str, rewrite_to: str | None = None) -> ResolvedModel | ModelFault:
        """Return where a request for `model` goes; see `ModelTable.resolve`."""
        return self._table.resolve(model, draw_by, rewrite_to)

    def names(self) -> tuple[ModelName, ...]:
        """Return every name that is served."""
        return self._table.names()

    def rewrite(self, rewrites: Iterable[Rewrite]) -> None:
        """Put other rewrites in force."""
        found = tuple(rewrites)
        if found != self.rewrites:
            self.rewrites = found
            self._make()

    def learn(self, table: PodTable) -> None:
        """Take in the adapters that pods report; one that is reported no more is forgotten."""
        if self._readings == table.readings:
            return
        self._readings = table.readings
        found = frozenset(
            LearnedAdapter(pod.pool, ModelName(name))
            for pod in table
            if pod.reading is not None
            for name in pod.reading.active_adapters | pod.reading.waiting_adapters
        )
        if found != self._learned:
            self._learned = found
            self._make()

    def _make(self) -> None:
        self._table = ModelTable(self.pools, self.rewrites, self._learned, self.default_pool)
