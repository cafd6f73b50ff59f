import re

from services.core.health.effects import Reason


def test_reasons_can_label_a_metric() -> None:
    assert all(re.fullmatch(r"[a-z_]+", reason.value) for reason in Reason)
    assert len({reason.value for reason in Reason}) == len(Reason)
