"""A cap on label values that come from requests: beyond it they are all called `other`.

A client that invents model names or tenants must not fill a time-series database. Names that configuration
knows are never folded. One cap per label of a metric family.
"""

from collections.abc import Iterable
from typing import Final

LABEL_VALUES_MAX: Final = 1000
"""Values of one label: what a Prometheus server takes without pain, and the cap that other pickers use."""
OTHER: Final = "other"


class CappedLabel:
    """Remembers the first `most` values beside the `known` ones."""

    __slots__ = ("_known", "_most", "_seen")

    def __init__(self, known: Iterable[str] = (), most: int = LABEL_VALUES_MAX) -> None:
        self._known = set(known)
        self._seen: set[str] = set()
        self._most = most

    def fold(self, value: str) -> str:
        """Return `value`, or `other` once too many have been seen."""
        if value in self._known or value in self._seen:
            return value
        if len(self._seen) >= self._most:
            return OTHER
        self._seen.add(value)
        return value

    def know(self, value: str) -> None:
        """Never fold `value`, which configuration names."""
        self._known.add(value)

    def known(self, value: str) -> str:
        """Return `value` if configuration names it, else `other`: for where less is kept apart than the cap allows."""
        return value if value in self._known else OTHER
