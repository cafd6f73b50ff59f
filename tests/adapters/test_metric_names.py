"""The closed list of metrics: well-formed names, kinds that fit them, and words for whoever is on call."""

import re

import pytest

from services.adapters import metric_names
from services.adapters.metric_names import METRICS, Kind, MetricSpec


@pytest.mark.parametrize("spec", METRICS.values(), ids=list(METRICS))
def test_each_metric_is_well_formed(spec: MetricSpec) -> None:
    assert re.fullmatch(r"gir_[a-z0-9_]+", spec.name)
    assert spec.name.endswith("_total") is (spec.kind is Kind.COUNTER)
    assert not spec.unit or spec.name.endswith(f"_{spec.unit}")
    assert all(re.fullmatch(r"[a-z_]+", label) for label in spec.labels)
    assert spec.what.endswith(".")
    assert spec.when_high.endswith(".")


def test_every_name_in_the_module_is_in_the_list() -> None:
    spoken = {
        value for value in vars(metric_names).values() if isinstance(value, str) and value.startswith("gir_")
    }
    assert spoken == set(METRICS)
