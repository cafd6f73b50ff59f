"""Objectives and rewrites that a cluster declares, kept in force while the picker runs.

Each source brings complete sets of its own; what counts is all of them together with the settings' own. Where
they come from is an adapter's business.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.adapters.ports import PoolObjects, PoolObjectsSource
from services.core.models.objectives import UNSET_PRIORITY
from services.core.models.rewrites import Rewrite
from services.endpoint_picker.models import LiveModels


@dataclass(slots=True, eq=False)
class Declared:
    """Puts what sources declare into force.

    `own` are the settings' objectives, which no source overrides; `own_rewrites` stay whatever sources declare.
    """

    own: Mapping[str, int]
    models: LiveModels
    own_rewrites: tuple[Rewrite, ...] = ()
    _sets: dict[int, PoolObjects] = field(default_factory=dict)
    _priorities: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Put the own rewrites in force, before any source has spoken."""
        self.models.rewrite(self.own_rewrites)

    def priority(self, pool: str, objective: str | None) -> int:
        """Return the priority of a request to `pool` that names `objective`; 0 for none and for an unknown one."""
        if objective is None:
            return UNSET_PRIORITY
        own = self.own.get(objective)
        return self._priorities.get((pool, objective), UNSET_PRIORITY) if own is None else own

    async def follow(self, place: int, source: PoolObjectsSource) -> None:
        """Take in each set of `source`, for ever. `place` orders sources: of one name the first counts."""
        async for objects in source.sets():
            self.take(place, objects)

    def take(self, place: int, objects: PoolObjects) -> None:
        """Replace what the source at `place` declared."""
        self._sets[place] = objects
        sets = [found for _, found in sorted(self._sets.items())]
        priorities: dict[tuple[str, str], int] = {}
        for found in sets:
            for pool, table in found.objectives.items():
                for name, priority in table.priorities.items():
                    priorities.setdefault((pool, name), priority)
        self._priorities = priorities
        self.models.rewrite((*self.own_rewrites, *(rewrite for found in sets for rewrite in found.rewrites)))
