"""The closed list of metrics: well-formed names, kinds that fit them, and words for whoever is on call."""

import re
from types import ModuleType

import pytest

from services.adapters.metric_names import discovery, field, picker, prefix, router
from services.adapters.metric_names.catalogue import METRICS
from services.adapters.metric_names.spec import Kind, MetricSpec

LISTS = (picker, prefix, discovery, router)
OURS = [spec for spec in METRICS.values() if spec.name.startswith("gir_")]


@pytest.mark.parametrize("spec", METRICS.values(), ids=list(METRICS))
def test_each_metric_is_well_formed(spec: MetricSpec) -> None:
    assert re.fullmatch(r"(gir|llm_d_epp|inference_(objective|pool|extension))_[a-z0-9_]+", spec.name)
    assert spec.name.endswith("_total") is (spec.kind is Kind.COUNTER)
    assert all(re.fullmatch(r"[a-z_]+", label) for label in spec.labels)
    assert spec.what.endswith(".")
    assert spec.when_high.endswith(".")


@pytest.mark.parametrize("spec", OURS, ids=lambda spec: spec.name)
def test_our_names_end_in_their_unit(spec: MetricSpec) -> None:
    assert not spec.unit or spec.name.endswith(f"_{spec.unit}")


@pytest.mark.parametrize("module", LISTS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_name_of_a_module_is_in_its_list(module: ModuleType) -> None:
    spoken = {value for value in vars(module).values() if isinstance(value, str) and value.startswith("gir_")}
    assert spoken == {spec.name for spec in module.SPECS}


def test_no_name_is_declared_twice() -> None:
    assert len(METRICS) == len(field.SPECS) + sum(len(module.SPECS) for module in LISTS)


def test_both_generations_of_a_name_have_the_same_labels() -> None:
    for metric in field.ALL:
        assert metric.names[0].startswith("llm_d_epp_")
        assert len({spec.labels for spec in metric.specs}) == 1
