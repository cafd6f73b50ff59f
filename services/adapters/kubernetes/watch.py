"""Keeping a collection of objects current: list once, watch, resume, list again when it must be.

An orderly end of a watch is resumed where it stood; a broken one, a forgotten version (410) and every ten minutes
bring a new list, so that no lost event outlives it. While the server is away the last objects stay and the reason
stands in `trouble`. What an event means is `mirror`'s.
"""

import logging
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

from services.adapters.kubernetes.api import ApiStatusError, KubernetesApi, Resource
from services.adapters.kubernetes.mirror import GONE, BrokenWatchError, Mirror, TooOldError
from services.adapters.ports import AdapterError, Clock, Ids
from services.core.units import NS_PER_MS, Duration, ms, seconds

_LOG = logging.getLogger(__name__)
NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class WatchRules:
    """How patient a watch is.

    `span`: a watch is asked to end after this long, so that a connection that died silently is noticed within
    `span + silence`. `relist_every`: the longest an event that was never sent can mislead. Backoff doubles from
    `retry_first` to `retry_most`, each wait drawn from its upper half.
    """

    span: Duration = seconds(30)
    silence: Duration = seconds(5)
    relist_every: Duration = seconds(600)
    retry_first: Duration = ms(250)
    retry_most: Duration = seconds(15)
    absent_every: Duration = seconds(60)
    """How often to ask for a kind that the server does not have: installing it is rare."""


Objects = tuple[Mapping[str, Any], ...]


class ObjectWatch:
    """One collection. With `optional`, a kind that the server does not know counts as a collection without objects."""

    def __init__(
        self,
        api: KubernetesApi,
        resource: Resource,
        clock: Clock,
        ids: Ids,
        rules: WatchRules | None = None,
        *,
        optional: bool = False,
    ) -> None:
        self.trouble = ""
        self._api = api
        self._resource = resource
        self._clock = clock
        self._ids = ids
        self._rules = rules or WatchRules()
        self._optional = optional
        self._mirror = Mirror()
        self._failures = 0

    async def sets(self) -> AsyncGenerator[Objects, None]:
        """Yield all objects, as soon as they are known and then at every change, for ever."""
        while True:
            try:
                items, version = await self._api.list(self._resource)
                changed = self._mirror.listed(items, version)
                self._recovered()
                if changed:
                    yield self._mirror.objects
                async for objects in self._watch():
                    yield objects
            except TooOldError:
                await self._pause(f"{self._resource.path}: the resume point is too old", quiet=True)
            except (AdapterError, BrokenWatchError) as error:
                if isinstance(error, ApiStatusError) and error.code == NOT_FOUND and self._optional:
                    if self._mirror.listed((), "none"):
                        yield ()
                    await self._clock.sleep(self._rules.absent_every)
                else:
                    await self._pause(
                        str(error), quiet=isinstance(error, ApiStatusError) and error.code == GONE
                    )

    async def _watch(self) -> AsyncGenerator[Objects, None]:
        """Watch and resume until it is time to list again."""
        rules = self._rules
        listed_at = self._clock.now()
        while (left := rules.relist_every - (self._clock.now() - listed_at)) > 0:
            span = Duration(min(rules.span, left))
            started = self._clock.now()
            events = self._api.watch(
                self._resource,
                self._mirror.version,
                max(1, round(span / seconds(1))),
                rules.silence / seconds(1),
            )
            try:
                async for event in events:
                    if self._mirror.heard(event):
                        yield self._mirror.objects
            finally:
                await events.aclose()
            if self._clock.now() - started < rules.retry_first:
                # A server that ends watches at once would be asked without pause.
                await self._clock.sleep(rules.retry_first)

    async def _pause(self, reason: str, *, quiet: bool) -> None:
        if not quiet and reason != self.trouble:
            self.trouble = reason
            _LOG.warning("Kubernetes: what is known stays as it was: %s", reason)
        most = min(self._rules.retry_first << min(self._failures, 16), self._rules.retry_most)
        self._failures += 1
        drawn = int.from_bytes(self._ids.token(2), "big") / (1 << 16)
        await self._clock.sleep(Duration(round(most * (1 + drawn) / 2) // NS_PER_MS * NS_PER_MS))

    def _recovered(self) -> None:
        self._failures = 0
        if self.trouble:
            self.trouble = ""
            _LOG.info("Kubernetes: %s is current again", self._resource.path)
