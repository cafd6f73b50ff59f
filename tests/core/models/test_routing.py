import pytest

from services.core.inference import ModelName
from services.core.models import routing
from services.core.models.rewrites import Rewrite, RewriteRule, Target
from services.core.models.routing import (
    LearnedAdapter,
    ModelFault,
    ModelTable,
    PoolModels,
    ResolvedModel,
    ServedModel,
)

name = ModelName
LLAMA = PoolModels(
    "llama-pool", (ServedModel(name("llama-8b"), (name("gpt-4o"),), (name("sql-lora"), name("chat-lora"))),)
)
QWEN = PoolModels("qwen-pool", (ServedModel(name("qwen-7b")), ServedModel(name("qwen-7b-fp8"))))
POOLS = (LLAMA, QWEN)


def rewrite(
    pool: str, matches: tuple[str, ...], *targets: str, title: str = "canary", age: int = 0
) -> Rewrite:
    rule = RewriteRule(tuple(map(name, matches)), tuple(Target(name(target)) for target in targets))
    return Rewrite(title, pool, -age, (rule,))


def found(
    table: ModelTable, model: str, rewrite_to: str | None = None
) -> tuple[str, str, str, str | None, str]:
    answer = table.resolve(model, "request", rewrite_to)
    assert isinstance(answer, ResolvedModel)
    assert answer.client_model == model
    return (answer.pool, answer.target_model, answer.base_model, answer.adapter, answer.rewrite_name)


TABLE = ModelTable(POOLS)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("llama-8b", ("llama-pool", "llama-8b", "llama-8b", None, "")),
        ("gpt-4o", ("llama-pool", "llama-8b", "llama-8b", None, "")),
        ("sql-lora", ("llama-pool", "sql-lora", "llama-8b", "sql-lora", "")),
        ("qwen-7b-fp8", ("qwen-pool", "qwen-7b-fp8", "qwen-7b-fp8", None, "")),
    ],
    ids=["model", "alias", "adapter", "second-model"],
)
def test_a_declared_name_finds_its_pool(model: str, expected: tuple[str, ...]) -> None:
    assert found(TABLE, model) == expected


def test_names_are_compared_as_they_are() -> None:
    assert TABLE.resolve("LLAMA-8B", "r") is ModelFault.NOT_FOUND
    for padded in (" llama-8b ", "llama-8b ", "llama-8b\u0000", ""):
        assert TABLE.resolve(padded, "r") is ModelFault.MALFORMED
        assert ModelTable(POOLS, default_pool="llama-pool").resolve(padded, "r") is ModelFault.MALFORMED


def test_an_unknown_model_is_not_found_or_goes_to_the_default_pool_under_its_own_name() -> None:
    assert TABLE.resolve("no-such", "r") is ModelFault.NOT_FOUND
    table = ModelTable(POOLS, default_pool="llama-pool")
    assert found(table, "no-such") == ("llama-pool", "no-such", "llama-8b", None, "")
    table = ModelTable(POOLS, default_pool="qwen-pool")
    assert found(table, "no-such") == ("qwen-pool", "no-such", "no-such", None, "")
    table = ModelTable(POOLS, [rewrite("llama-pool", (), "sql-lora")], default_pool="llama-pool")
    assert found(table, "no-such") == ("llama-pool", "sql-lora", "llama-8b", "sql-lora", "canary")


def test_the_default_pool_is_one_of_the_pools() -> None:
    with pytest.raises(ValueError, match="default_pool 'gone' is none of the pools"):
        ModelTable(POOLS, default_pool="gone")


def test_of_a_name_on_two_pools_the_first_pool_counts() -> None:
    again = PoolModels(
        "second", (ServedModel(name("llama-8b")), ServedModel(name("mine"), (name("llama-8b"),)))
    )
    assert found(ModelTable([LLAMA, again]), "llama-8b")[0] == "llama-pool"
    assert found(ModelTable([again, LLAMA]), "llama-8b")[:2] == ("second", "llama-8b")


def test_a_rewrite_splits_the_traffic_of_a_name() -> None:
    table = ModelTable(POOLS, [rewrite("llama-pool", ("llama-8b",), "sql-lora", "chat-lora")])
    answers = {table.resolve("llama-8b", f"r{i}") for i in range(64)}
    assert answers == {
        ResolvedModel("llama-pool", name("llama-8b"), lora, name("llama-8b"), lora, "canary")
        for lora in (name("sql-lora"), name("chat-lora"))
    }
    assert table.resolve("llama-8b", "r1") == table.resolve("llama-8b", "r1")
    assert found(table, "chat-lora") == ("llama-pool", "chat-lora", "llama-8b", "chat-lora", "")


def test_a_rewrite_of_a_model_holds_for_its_aliases_unless_the_alias_has_one() -> None:
    of_model = rewrite("llama-pool", ("llama-8b",), "sql-lora")
    of_alias = rewrite("llama-pool", ("gpt-4o",), "chat-lora", title="alias")
    assert found(ModelTable(POOLS, [of_model]), "gpt-4o")[1] == "sql-lora"
    assert found(ModelTable(POOLS, [of_model, of_alias]), "gpt-4o")[1] == "chat-lora"
    assert found(ModelTable(POOLS, [of_model, of_alias]), "llama-8b")[1] == "sql-lora"


def test_a_rewrite_to_an_alias_asks_the_server_for_the_model() -> None:
    table = ModelTable(POOLS, [rewrite("llama-pool", ("sql-lora",), "gpt-4o")])
    assert found(table, "sql-lora") == ("llama-pool", "llama-8b", "llama-8b", None, "canary")


def test_a_rewrite_to_a_name_nobody_declared_runs_on_the_pools_one_model() -> None:
    table = ModelTable(
        POOLS, [rewrite("llama-pool", ("llama-8b",), "v2"), rewrite("qwen-pool", ("qwen-7b",), "v2")]
    )
    assert found(table, "llama-8b") == ("llama-pool", "v2", "llama-8b", None, "canary")
    assert found(table, "qwen-7b") == ("qwen-pool", "v2", "v2", None, "canary")


def test_a_rewrite_of_another_pool_does_not_touch_a_declared_name() -> None:
    assert (
        found(ModelTable(POOLS, [rewrite("qwen-pool", ("llama-8b",), "qwen-7b")]), "llama-8b")[0]
        == "llama-pool"
    )


def test_a_name_that_only_a_rewrite_knows_goes_to_that_rewrites_pool_the_oldest_first() -> None:
    young = rewrite("llama-pool", ("assistant",), "llama-8b", title="young")
    old = rewrite("qwen-pool", ("assistant",), "qwen-7b", title="old", age=1)
    stray = rewrite("gone-pool", ("assistant",), "x", title="stray", age=2)
    assert found(ModelTable(POOLS, [young]), "assistant")[0] == "llama-pool"
    assert found(ModelTable(POOLS, [young, old, stray]), "assistant") == (
        "qwen-pool",
        "qwen-7b",
        "qwen-7b",
        None,
        "old",
    )


def test_a_rule_without_targets_leaves_a_name_as_it_is_and_makes_no_name_known() -> None:
    table = ModelTable(POOLS, [rewrite("llama-pool", ("llama-8b", "assistant"))])
    assert found(table, "llama-8b") == ("llama-pool", "llama-8b", "llama-8b", None, "")
    assert table.resolve("assistant", "r") is ModelFault.NOT_FOUND


def test_a_learned_adapter_is_served_on_the_pool_that_reports_it() -> None:
    learned = [
        LearnedAdapter("llama-pool", name("new-lora")),
        LearnedAdapter("qwen-pool", name("q-lora"), name("qwen-7b-fp8")),
        LearnedAdapter("qwen-pool", name("q-lora")),
        LearnedAdapter("qwen-pool", name("lost-lora"), name("/models/unknown")),
    ]
    for order in (learned, learned[::-1]):
        table = ModelTable(POOLS, learned=order)
        assert found(table, "new-lora") == ("llama-pool", "new-lora", "llama-8b", "new-lora", "")
        assert found(table, "q-lora") == ("qwen-pool", "q-lora", "qwen-7b-fp8", "q-lora", "")
        assert found(table, "lost-lora") == ("qwen-pool", "lost-lora", "lost-lora", "lost-lora", "")


def test_a_report_changes_no_declared_name_and_unusable_reports_are_left_out() -> None:
    learned = [
        LearnedAdapter("qwen-pool", name("llama-8b")),
        LearnedAdapter("gone-pool", name("a")),
        LearnedAdapter("qwen-pool", name("b c")),
        LearnedAdapter("qwen-pool", name("twice")),
        LearnedAdapter("llama-pool", name("twice")),
    ]
    table = ModelTable(POOLS, learned=learned)
    assert found(table, "llama-8b")[0] == "llama-pool"
    assert found(table, "twice")[0] == "llama-pool"
    assert table.resolve("a", "r") is ModelFault.NOT_FOUND
    assert table.names() == (
        "llama-8b",
        "gpt-4o",
        "sql-lora",
        "chat-lora",
        "qwen-7b",
        "qwen-7b-fp8",
        "twice",
    )


def test_learned_adapters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "MAX_LEARNED_ADAPTERS", 2)
    learned = [LearnedAdapter("llama-pool", name(f"lora-{i}")) for i in range(5)]
    assert ModelTable([LLAMA], learned=learned).names()[4:] == ("lora-0", "lora-1")


@pytest.mark.parametrize(
    ("model", "target", "expected"),
    [
        ("llama-8b", "sql-lora", ("llama-pool", "sql-lora", "llama-8b", "sql-lora", "")),
        ("llama-8b", "qwen-7b", ("qwen-pool", "qwen-7b", "qwen-7b", None, "")),
        ("llama-8b", "unlisted", ("llama-pool", "unlisted", "llama-8b", None, "")),
        ("no-such", "sql-lora", ("llama-pool", "sql-lora", "llama-8b", "sql-lora", "")),
    ],
)
def test_a_trusted_target_goes_before_every_rewrite(
    model: str, target: str, expected: tuple[str, ...]
) -> None:
    table = ModelTable(POOLS, [rewrite("llama-pool", (), "chat-lora")])
    assert found(table, model, target) == expected


def test_a_trusted_target_must_be_a_name_that_leads_somewhere() -> None:
    assert TABLE.resolve("llama-8b", "r", " sql-lora") is ModelFault.MALFORMED
    assert TABLE.resolve("llama 8b", "r", "sql-lora") is ModelFault.MALFORMED
    assert TABLE.resolve("no-such", "r", "neither") is ModelFault.NOT_FOUND
    table = ModelTable(POOLS, default_pool="llama-pool")
    assert found(table, "no-such", "neither") == ("llama-pool", "neither", "llama-8b", None, "")


def test_a_name_on_both_pools_stays_on_the_clients_pool() -> None:
    twin = PoolModels("twin", (ServedModel(name("mine"), (), (name("sql-lora"),)),))
    assert found(ModelTable([LLAMA, twin]), "mine", "sql-lora") == (
        "twin",
        "sql-lora",
        "mine",
        "sql-lora",
        "",
    )
