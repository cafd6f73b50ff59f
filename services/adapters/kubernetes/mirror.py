"""A copy of a collection of Kubernetes objects, kept true by lists and watch events. No socket and no clock.

Laws. A list replaces everything. Events apply in the order they come, and the version to resume from is that of
the last one, bookmarks included. An error event of code 410 means that the resume point is forgotten. Apart from
the loop that feeds it so that every order of events can be tried.
"""

from collections.abc import Iterable, Mapping
from typing import Any

GONE = 410


class TooOldError(Exception):
    """The resource version to resume from is no longer known (410 Gone): list again."""


class BrokenWatchError(Exception):
    """The watch said something that cannot be applied; only a new list makes the copy true again."""


class Mirror:
    """Objects by name. `version` is where a watch may resume, empty before the first list."""

    def __init__(self) -> None:
        self.version = ""
        self._objects: dict[str, Mapping[str, Any]] = {}

    @property
    def objects(self) -> tuple[Mapping[str, Any], ...]:
        """The objects by name, so that the order says nothing."""
        return tuple(self._objects[name] for name in sorted(self._objects))

    def listed(self, items: Iterable[Mapping[str, Any]], version: str) -> bool:
        """Take in a complete list; return whether anything is other than before."""
        first = not self.version
        found = {item["metadata"]["name"]: item for item in items}
        changed = first or found != self._objects
        self._objects, self.version = found, version
        return changed

    def heard(self, event: Mapping[str, Any]) -> bool:
        """Take in one watch event; return whether an object changed. Raises `TooOldError` or `BrokenWatchError`."""
        kind, thing = event.get("type"), event.get("object")
        if not isinstance(thing, Mapping):
            raise BrokenWatchError(f"event {kind!r} without an object")
        if kind == "ERROR":
            if thing.get("code") == GONE:
                raise TooOldError(str(thing.get("message", "")))
            raise BrokenWatchError(str(thing.get("message", "the watch failed")))
        metadata = thing.get("metadata") or {}
        version = metadata.get("resourceVersion")
        if not version:
            raise BrokenWatchError(f"event {kind!r} without a resource version")
        if kind not in {"BOOKMARK", "ADDED", "MODIFIED", "DELETED"}:
            raise BrokenWatchError(f"event of an unknown type {kind!r}")
        self.version = version
        if kind == "BOOKMARK":
            return False
        name = metadata["name"]
        if kind == "DELETED":
            return self._objects.pop(name, None) is not None
        changed = self._objects.get(name) != thing
        self._objects[name] = thing
        return changed
