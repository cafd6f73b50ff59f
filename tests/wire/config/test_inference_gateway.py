import pytest

from services.core.inference import ModelName
from services.core.models.rewrites import Rewrite, RewriteRule, Target
from services.core.models.routing import LearnedAdapter, ModelFault, ResolvedModel
from services.wire.config.inference_gateway import SCORERS, InferenceGateway, ScorerWeights
from services.wire.config.load import load
from services.wire.config.yaml_writer import plain_values, write_yaml
from tests.wire.config.gateways import DROP, GATEWAY, changed


def gateway(*changes: tuple[str, object]) -> InferenceGateway:
    documents = load(write_yaml([changed(GATEWAY, *changes)]))
    assert documents.problems == ()
    return documents.inference_gateways[0].value


def test_the_table_of_names_is_the_documents() -> None:
    table = gateway().spec.model_table()
    assert table.names() == ("llama-8b", "gpt-4o", "sql-lora", "qwen-7b")
    names = (ModelName("llama-8b"), ModelName("sql-lora"))
    assert table.resolve("llama-8b", "r") == ResolvedModel("llama", *names, names[0], names[1], "canary")
    unknown = table.resolve("no-such", "r")
    assert isinstance(unknown, ResolvedModel)
    assert unknown.pool == "llama"
    assert (
        gateway(("spec.bodyRouting", DROP)).spec.model_table().resolve("no-such", "r") is ModelFault.NOT_FOUND
    )


def test_learned_adapters_and_a_clusters_rewrites_are_added() -> None:
    rule = RewriteRule((ModelName("qwen-7b"),), (Target(ModelName("q-lora")),))
    table = gateway().spec.model_table(
        [LearnedAdapter("qwen", ModelName("q-lora"))], [Rewrite("cluster", "qwen", 5, (rule,))]
    )
    resolved = table.resolve("qwen-7b", "r")
    assert isinstance(resolved, ResolvedModel)
    assert (resolved.adapter, resolved.rewrite_name) == ("q-lora", "cluster")


def test_of_two_rewrites_of_a_name_the_first_in_the_document_counts() -> None:
    first = GATEWAY["spec"]["rewrites"][0]
    other = {"name": "a", "pool": "llama", "rules": [{"targets": [{"model": "x"}], "matches": ["llama-8b"]}]}
    resolved = gateway(("spec.rewrites", [first, other])).spec.model_table().resolve("llama-8b", "r")
    assert isinstance(resolved, ResolvedModel)
    assert resolved.rewrite_name == "canary"


def test_without_body_routing_the_one_pool_takes_every_name() -> None:
    spec = gateway(
        ("spec.bodyRouting", {"enabled": False}), ("spec.pools", GATEWAY["spec"]["pools"][:1])
    ).spec
    resolved = spec.model_table().resolve("whatever", "r")
    assert isinstance(resolved, ResolvedModel)
    assert (resolved.pool, resolved.target_model) == ("llama", "whatever")


def test_objectives_are_a_table() -> None:
    table = gateway().spec.objective_table()
    assert (table.priority("urgent"), table.priority("no-such")) == (10, 0)


def test_weights_are_by_scorer_and_zero_leaves_one_out() -> None:
    every = ScorerWeights(
        queue=1, kv_cache=2, prefix=3, lru=4, lora_affinity=5, running_requests=6, predicted_latency=7
    )
    assert dict(every.by_scorer()) == dict(zip(SCORERS.values(), range(1, 8), strict=True))
    assert dict(ScorerWeights(queue=0, kv_cache=0).by_scorer()) == {"prefix-cache-scorer": 3}


def test_a_document_is_written_as_it_is_read() -> None:
    read = gateway()
    assert load(write_yaml([plain_values(read)])).inference_gateways[0].value == read


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        (
            "spec.pools",
            [],
            "(text): spec.pools: a list of 0: Tuple should have at least 1 item after validation, not 0",
        ),
        ("spec.auth", DROP, "(text): spec.auth: (missing): is required"),
        ("spec.pools.0.modles", [], "(text): spec.pools[0].modles: a list of 0: is not a field of this kind"),
        (
            "spec.bodyRouting.defaultPool",
            None,
            "(text): spec.bodyRouting.defaultPool: null: must not be null; leave the field out instead",
        ),
    ],
)
def test_what_is_no_gateway_is_refused(path: str, value: object, line: str) -> None:
    assert [str(problem) for problem in load(write_yaml([changed(GATEWAY, (path, value))])).problems] == [
        line
    ]
