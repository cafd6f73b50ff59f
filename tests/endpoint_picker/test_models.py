"""The names in force follow what pods report and what rewrites say."""

import pytest

from services.core.inference import ModelName
from services.core.models.rewrites import Rewrite, RewriteRule, Target
from services.core.models.routing import ModelFault, PoolModels, ResolvedModel, ServedModel
from services.core.pods.reading import EngineReading
from services.core.pods.table import Pod, PodTable
from services.core.units import Instant
from services.endpoint_picker.models import LiveModels

BASE = ModelName("llama")
POOLS = (PoolModels("chat", (ServedModel(BASE),)),)


def reading(*adapters: str) -> EngineReading:
    return EngineReading("vllm", 0, 0, 0.0, active_adapters=frozenset(adapters))


def test_an_adapter_is_served_while_a_pod_reports_it() -> None:
    models = LiveModels(POOLS)
    table = PodTable([Pod("a", "a:1", "chat")], Instant(0))
    assert models.resolve("sql-lora", "r") is ModelFault.NOT_FOUND
    table.read("a", reading("sql-lora"), Instant(1))
    models.learn(table)
    found = models.resolve("sql-lora", "r")
    assert isinstance(found, ResolvedModel)
    assert (found.pool, found.base_model, found.adapter) == ("chat", BASE, "sql-lora")
    assert models.names() == (BASE, "sql-lora")
    table.read("a", reading(), Instant(2))
    models.learn(table)
    assert models.resolve("sql-lora", "r") is ModelFault.NOT_FOUND


def test_rewrites_take_effect_when_they_change() -> None:
    models = LiveModels(POOLS)
    canary = Rewrite("canary", "chat", 0, (RewriteRule((BASE,), (Target(ModelName("llama-2"), 1),)),))
    models.rewrite([canary])
    found = models.resolve(BASE, "r")
    assert isinstance(found, ResolvedModel)
    assert (found.target_model, found.rewrite_name) == ("llama-2", "canary")
    models.rewrite([])
    assert isinstance(found := models.resolve(BASE, "r"), ResolvedModel)
    assert found.target_model == BASE


def test_a_default_pool_must_exist() -> None:
    with pytest.raises(ValueError, match="nowhere"):
        LiveModels(POOLS, default_pool="nowhere")
