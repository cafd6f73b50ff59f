"""Objectives: the name of an `InferenceObjective` -> the priority of its requests.

A value that is replaced when objectives change. Who may ask for which priority is the grant's
ceiling, not decided here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

UNSET_PRIORITY = 0
"""An objective that gives no priority, and a request that names none: neither favoured nor sheddable."""


@dataclass(frozen=True, slots=True)
class ObjectiveTable:
    """Priorities by objective name. `default` is that of a request whose objective is absent or unknown."""

    priorities: Mapping[str, int] = field(default_factory=dict)
    default: int = UNSET_PRIORITY

    def priority(self, objective: str | None) -> int:
        """Return the priority; below 0 the request may be shed first."""
        return self.default if objective is None else self.priorities.get(objective, self.default)

    def capped(self, objective: str | None, ceiling: int) -> int:
        """Return the priority, no higher than a caller's grant allows."""
        return min(self.priority(objective), ceiling)
