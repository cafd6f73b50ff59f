"""A settled heap: what is there is never looked at again, and young objects rarely."""

import gc

from services.adapters.system.heap import YOUNG_OBJECTS_MAX, settle_heap


def test_what_was_made_before_is_out_of_the_collectors_sight() -> None:
    before = gc.get_threshold()
    try:
        settle_heap()
        assert gc.get_freeze_count() > 10_000
        assert gc.get_threshold() == (YOUNG_OBJECTS_MAX, *before[1:])
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
