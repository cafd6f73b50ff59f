"""What a picker makes of a gateway's document beside its settings, and how it says that the two do not agree."""

import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from services.core.inference import ModelName
from services.core.models.rewrites import Rewrite, RewriteRule, Target
from services.core.models.routing import PoolModels, ServedModel
from services.core.scheduling.baselines import strategy
from services.endpoint_picker.gateway_file import Served, served_by
from services.endpoint_picker.settings import PickerSettings
from services.wire.config.inference_gateway import SCORERS
from services.wire.config.settings_source import SettingsError
from services.wire.config.yaml_writer import write_yaml
from tests.wire.config.gateways import DROP, GATEWAY, changed

LLAMA: dict[str, Any] = {"name": "llama", "endpoints": [{"id": "a", "address": "fd00::1", "port": 8000}]}
QWEN: dict[str, Any] = {"name": "qwen", "endpoints": [{"id": "b", "address": "10.0.0.2:8000"}]}


def settings(**changes: Any) -> PickerSettings:
    least = {"cluster": "eu-west-1", "region": "eu-west", "jurisdiction": "eu", "pools": [LLAMA, QWEN]}
    return PickerSettings.model_validate(least | changes)


def document(folder: Path, *changes: tuple[str, Any]) -> Path:
    file = folder / "gateway.yaml"
    file.write_text(write_yaml([changed(GATEWAY, *changes)]))
    return file


def served(folder: Path, *changes: tuple[str, Any], **of_settings: Any) -> Served:
    return served_by(settings(gateway=document(folder, *changes), **of_settings))


def refused(file: Path, **of_settings: Any) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        served_by(settings(gateway=file, **of_settings))
    return list(caught.value.problems)


def test_settings_without_a_document_say_everything_themselves() -> None:
    alone = settings(pools=[LLAMA | {"models": ["m"]}])
    assert served_by(alone) == Served(alone)


def test_the_document_says_what_the_pools_of_the_settings_serve(tmp_path: Path) -> None:
    found = served(tmp_path)
    assert found.settings.pool_models == (
        PoolModels(
            "llama",
            (ServedModel(ModelName("llama-8b"), (ModelName("gpt-4o"),), (ModelName("sql-lora"),)),),
        ),
        PoolModels("qwen", (ServedModel(ModelName("qwen-7b")),)),
    )
    assert found.settings.default_pool == "llama"
    assert found.settings.objectives == {"urgent": 10}
    rule = RewriteRule((ModelName("llama-8b"),), (Target(ModelName("sql-lora"), 1),))
    assert found.rewrites == (Rewrite("canary", "llama", 0, (rule,)),)
    assert found.settings.gateway is None


def test_the_settings_say_where_the_pods_are(tmp_path: Path) -> None:
    pods = [[pod.address for pod in pool.endpoints] for pool in served(tmp_path).settings.pools]
    assert pods == [["[fd00::1]:8000"], ["10.0.0.2:8000"]]


def test_without_body_routing_every_model_is_the_one_pools(tmp_path: Path) -> None:
    found = served(
        tmp_path,
        ("spec.bodyRouting", {"enabled": False}),
        ("spec.pools", GATEWAY["spec"]["pools"][:1]),
        pools=[LLAMA],
    )
    assert found.settings.default_pool == "llama"


def test_without_a_default_pool_unknown_models_are_nobodys(tmp_path: Path) -> None:
    assert served(tmp_path, ("spec.bodyRouting", DROP)).settings.default_pool is None


@pytest.mark.parametrize(
    ("limit", "http", "ext_proc"), [(100, 100, 100), (5_000, 5_000, 4_096), (1 << 20, 8_192, 4_096)]
)
def test_the_smaller_limit_of_bodies_holds(tmp_path: Path, limit: int, http: int, ext_proc: int) -> None:
    found = served(
        tmp_path,
        ("spec.bodyRouting.maxBodyBytes", limit),
        http={"body_max_bytes": 8_192},
        ext_proc={"body_max_bytes": 4_096},
    ).settings
    assert (found.http.body_max_bytes, found.ext_proc.body_max_bytes) == (http, ext_proc)


def test_a_pool_may_have_a_timeout_of_its_own(tmp_path: Path) -> None:
    assert served(tmp_path, ("spec.pools.1.requestTimeoutMs", 90_000)).total_ms == {"qwen": 90_000}


def test_the_engine_is_the_documents_where_it_says_one(tmp_path: Path) -> None:
    found = served(tmp_path, ("spec.pools.0.engine", "sglang"), pools=[LLAMA, QWEN | {"engine": "tgi"}])
    assert [pool.engine for pool in found.settings.pools] == ["sglang", "tgi"]
    same = served(tmp_path, ("spec.pools.0.engine", "vllm"), pools=[LLAMA | {"engine": "vllm"}, QWEN])
    assert same.settings.pools[0].engine == "vllm"


def test_pools_without_scheduling_are_picked_as_the_settings_say(tmp_path: Path) -> None:
    assert served(tmp_path).profiles == {}


@pytest.mark.parametrize("name", ["RANDOM", "ROUND_ROBIN", "LEAST_OUTSTANDING_REQUESTS", "PREFIX_AWARE"])
def test_a_strategy_is_the_baseline_of_that_name(tmp_path: Path, name: str) -> None:
    found = served(tmp_path, ("spec.pools.1.scheduling", {"strategy": name}))
    assert found.profiles == {"qwen": strategy(name)}


def test_weights_are_those_of_the_scorers_and_0_leaves_one_out(tmp_path: Path) -> None:
    weights = {"queue": 1, "kvCache": 0, "prefix": 5, "loraAffinity": 2}
    profile = served(tmp_path, ("spec.pools.0.scheduling", {"weights": weights})).profiles["llama"]
    assert [(each.name, each.weight) for each in profile.scorers] == [
        ("queue", 1.0),
        ("prefix", 5.0),
        ("lora", 2.0),
    ]


def test_every_weight_has_its_scorer(tmp_path: Path) -> None:
    fields = ("queue", "kvCache", "prefix", "lru", "loraAffinity", "runningRequests", "predictedLatency")
    weights = {name: place + 1 for place, name in enumerate(fields)}
    profile = served(tmp_path, ("spec.pools.0.scheduling", {"weights": weights})).profiles["llama"]
    assert [each.weight for each in profile.scorers] == [1, 2, 3, 4, 5, 6, 7]
    assert len({each.name for each in profile.scorers}) == len(SCORERS) == len(fields)


def test_a_config_map_is_not_read(tmp_path: Path) -> None:
    file = document(tmp_path, ("spec.pools.1.scheduling", {"configMapRef": {"name": "plugins"}}))
    (problem,) = refused(file)
    assert problem == (
        f"{file}: spec.pools[1].scheduling.configMapRef: 'plugins': a picker reads no ConfigMap; "
        "give the file it holds as `scheduling.config` of the settings"
    )


def test_each_pool_is_one_of_both(tmp_path: Path) -> None:
    file = document(tmp_path)
    assert refused(file, pools=[LLAMA, QWEN | {"name": "mistral"}]) == [
        f"{file}: spec.pools: 'mistral': is a pool of the settings and must be one of the document",
        f"{file}: spec.pools[1].name: 'qwen': is no pool of the settings, which say where its endpoints are",
    ]


def test_two_engines_for_one_pool_are_a_contradiction(tmp_path: Path) -> None:
    file = document(tmp_path, ("spec.pools.0.engine", "vllm"))
    assert refused(file, pools=[LLAMA | {"engine": "sglang"}, QWEN]) == [
        f"{file}: spec.pools[0].engine: 'vllm': contradicts the settings, which say sglang"
    ]


def test_a_document_is_validated_like_any_other(tmp_path: Path) -> None:
    file = document(tmp_path, ("spec.bodyRouting.defaultPool", "none"))
    assert refused(file) == [f"{file}: spec.bodyRouting.defaultPool: 'none': is no pool of this gateway"]


def test_a_name_on_two_pools_is_refused_though_waived(tmp_path: Path) -> None:
    file = document(
        tmp_path, ("spec.pools.1.models.0.name", "llama-8b"), ("spec.waive", ["model-on-two-pools"])
    )
    assert refused(file) == [
        f"{file}: spec.pools: a list of 2: 'llama-8b' is served more than once; one name must lead to one pool"
    ]


def test_what_a_document_waives_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        served(tmp_path, ("spec.auth", {"mode": "none"}), ("spec.waive", ["auth-none"]))
    (said,) = caplog.messages
    assert "spec.auth.mode: 'none': warning: serves whoever reaches it (auth-none is waived)" in said


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    file = tmp_path / "none.yaml"
    assert refused(file) == [f"gateway: {file}: No such file or directory"]


def test_a_file_holds_one_gateway(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(write_yaml([GATEWAY, changed(GATEWAY, ("metadata.name", "other"))]))
    assert refused(file) == [f"{file}: kind: 2 InferenceGateway: must hold exactly one"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pools": [LLAMA, QWEN | {"models": ["m"]}]}, "pools.1.models: the gateway's document says them"),
        ({"default_pool": "llama"}, "default_pool: the gateway's document says it"),
        ({"objectives": {"urgent": 1}}, "objectives: the gateway's document says it"),
        ({"gateway": None}, "pools.0.models: required unless gateway is given"),
    ],
)
def test_exactly_one_of_the_two_says_what_is_served(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        settings(**{"gateway": "gateway.yaml"} | changes)
