"""Settling the heap of a service that has started, so that collecting garbage stops no request for long."""

import gc
from typing import Final

YOUNG_OBJECTS_MAX: Final = 10_000
"""Objects made before the collector looks at them: a pass over so many takes about 0.5 ms."""


def settle_heap() -> None:
    """Spare the collector what was made at start, and let it look at young objects less often.

    A full collection over the 100,000 objects of the imported modules stops every request for 60 ms; they live as
    long as the process. A request leaves no cycles behind, so young ones may pile up longer: the default of 700
    looks at the decision records after every 200 requests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX, *gc.get_threshold()[1:])
