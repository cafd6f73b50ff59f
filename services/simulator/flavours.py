"""The engines a pod can pose as: versions, default metric names, and which page each has.

Values and one choice; the pages themselves are in `vllm_page` and `sglang_page`.
"""

import enum
import re
from collections.abc import Sequence
from typing import Protocol

from services.core.units import Instant, WallMs
from services.simulator.engine import Engine
from services.simulator.exposition import Gauges
from services.simulator.process_page import process_page
from services.simulator.sglang_page import SglangPage, sglang_tallies
from services.simulator.tallies import Tallies
from services.simulator.vllm_page import MetricNames, VllmPage

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")
_FIRST_CURRENT = (0, 9, 2)
"""vLLM's first version whose V1 engine publishes today's names only."""


class Flavour(enum.Enum):
    """The engine a pod poses as."""

    VLLM = "vllm"
    SGLANG = "sglang"

    @property
    def default_version(self) -> str:
        """The version a pod says it has when none is set."""
        return "0.11.0" if self is Flavour.VLLM else "0.5.5"

    def tallies(self) -> Tallies:
        """Return tallies with this engine's buckets."""
        return Tallies() if self is Flavour.VLLM else sglang_tallies()


class Page(Protocol):
    """A metrics page."""

    def render(self, now: Instant, wall_ms: WallMs, gauges: Gauges = Gauges.TRUE) -> bytes:
        """Return the page as of the engines' last advance; `wall_ms` is the wall time at `now`."""


def names_of(version: str) -> MetricNames:
    """Return the metric names that this version of vLLM has; today's for one that cannot be read."""
    found = _VERSION.match(version)
    if found is None:
        return MetricNames.CURRENT
    number = (int(found[1]), int(found[2]), int(found[3] or 0))
    return MetricNames.CURRENT if number >= _FIRST_CURRENT else MetricNames.OLD


def page_of(flavour: Flavour, names: MetricNames, model: str, engines: Sequence[Engine], lines: int) -> Page:
    """Return a page of at least `lines` lines; `names` matter to vLLM only."""

    def page(tail: bytes) -> Page:
        if flavour is Flavour.SGLANG:
            return SglangPage(model, engines, tail)
        return VllmPage(names, model, engines, tail)

    if not lines:
        return page(b"")
    own = page(b"").render(Instant(0), WallMs(0)).count(b"\n")
    return page(process_page(lines - own))
