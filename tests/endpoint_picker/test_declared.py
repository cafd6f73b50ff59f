"""What several sources declare holds together, and what one takes back is gone."""

from services.adapters.ports import PoolObjects
from services.core.inference import ModelName
from services.core.models.objectives import ObjectiveTable
from services.core.models.rewrites import Rewrite, RewriteRule, Target
from services.core.models.routing import PoolModels, ResolvedModel, ServedModel
from services.endpoint_picker.declared import Declared
from services.endpoint_picker.models import LiveModels

MODEL = ModelName("m")
POOLS = (PoolModels("chat", (ServedModel(MODEL),)), PoolModels("code", (ServedModel(ModelName("c")),)))
NOTHING = PoolObjects({}, ())


def objectives(pool: str, **priorities: int) -> PoolObjects:
    return PoolObjects({pool: ObjectiveTable(priorities)}, ())


def test_an_objective_counts_for_the_pool_it_is_declared_for() -> None:
    declared = Declared({}, LiveModels(POOLS))
    declared.take(0, objectives("chat", gold=5, lead=-1))
    assert [declared.priority("chat", name) for name in ("gold", "lead", "tin", None)] == [5, -1, 0, 0]
    assert declared.priority("code", "gold") == 0


def test_settings_come_first_then_sources_in_their_order() -> None:
    declared = Declared({"gold": 9}, LiveModels(POOLS))
    declared.take(1, objectives("chat", gold=1, silver=1))
    declared.take(0, objectives("chat", silver=2))
    assert (declared.priority("chat", "gold"), declared.priority("chat", "silver")) == (9, 2)
    declared.take(0, NOTHING)
    assert declared.priority("chat", "silver") == 1


def test_rewrites_of_all_sources_are_in_force() -> None:
    models = LiveModels(POOLS)
    declared = Declared({}, models)
    rule = RewriteRule((MODEL,), (Target(ModelName("m-2"), 1),))
    declared.take(0, PoolObjects({}, (Rewrite("canary", "chat", 0, (rule,)),)))
    declared.take(1, NOTHING)
    found = models.resolve(MODEL, "r")
    assert isinstance(found, ResolvedModel)
    assert found.target_model == "m-2"
    declared.take(0, NOTHING)
    assert isinstance(found := models.resolve(MODEL, "r"), ResolvedModel)
    assert found.target_model == MODEL


def test_own_rewrites_are_in_force_from_the_start_and_stay() -> None:
    models = LiveModels(POOLS)

    def target() -> str:
        found = models.resolve(MODEL, "r")
        assert isinstance(found, ResolvedModel)
        return found.target_model

    own = Rewrite("own", "chat", 0, (RewriteRule((MODEL,), (Target(ModelName("m-own"), 1),)),))
    declared = Declared({}, models, (own,))
    assert target() == "m-own"
    theirs = RewriteRule((MODEL,), (Target(ModelName("m-theirs"), 1),))
    declared.take(0, PoolObjects({}, (Rewrite("theirs", "chat", 1, (theirs,)),)))
    assert target() == "m-own"
    declared.take(0, NOTHING)
    assert target() == "m-own"
