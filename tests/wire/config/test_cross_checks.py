import pytest

from services.wire.config.documents import Source
from services.wire.config.load import load
from tests.wire.config import example


def problems(text: str) -> list[str]:
    return [str(problem).removeprefix("(text)") for problem in load(text).problems]


def test_the_example_is_sound() -> None:
    assert problems(example.EVERYTHING) == []


def change(old: str, new: str) -> str:
    assert old in example.EVERYTHING
    return example.EVERYTHING.replace(old, new, 1)


@pytest.mark.parametrize(
    "broken",
    [
        change("jurisdiction: us", "jurisdiction: US"),
        change("kind: Fleet", "kind: Fleet\nmore: 1"),
        change("apiVersion: gir.dev/v1", "apiVersion: gir.dev/v0"),
    ],
)
def test_what_refers_to_a_fleet_that_is_not_sound_is_not_judged(broken: str) -> None:
    (line,) = problems(broken)
    assert line.startswith((": spec.clusters[1].jurisdiction", ": more", ": apiVersion"))


def test_a_file_that_is_no_yaml_may_have_held_the_fleet() -> None:
    found = load([Source("fleet.yaml", b"a: 1\na: 2\n"), Source("rest.yaml", example.TENANT.encode())])
    assert [str(problem) for problem in found.problems] == [
        "fleet.yaml: line 2 column 1: 'a: 2': key 'a' is given twice"
    ]


MISTRAL = "    - name: mistral\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            example.EVERYTHING + "---\n" + example.ROUTING_POLICY,
            "#6: kind: 'RoutingPolicy': a second RoutingPolicy; the first is in (text)#2",
        ),
        (
            example.FLEET.replace("{id: us-east-a", "{id: eu-west-a"),
            ": spec.clusters[1].id: 'eu-west-a': cluster is declared twice; first in (text): spec.clusters[0].id",
        ),
        (
            change(MISTRAL, MISTRAL + "      aliases: [llama]\n"),
            (
                ": spec.models[1].aliases[0]: 'llama': model or alias is declared twice; "
                "first in (text): spec.models[0].aliases[0]"
            ),
        ),
        (
            example.EVERYTHING + "---\n" + example.TENANT,
            "#6: metadata.name: 'acme': tenant is declared twice; first in (text)#3: metadata.name",
        ),
        (
            example.EVERYTHING + "---\n" + example.TOKEN_KEYS,
            "#6: spec.keys[0].kid: 'gir-1': token key is declared twice; first in (text)#4: spec.keys[0].kid",
        ),
        (
            change(
                "region: us-east, jurisdiction: us, httpPort", "region: us-east, jurisdiction: eu, httpPort"
            ),
            (
                "#5: spec.regions[1].jurisdiction: 'eu': region us-east lies in us "
                "in (text): spec.clusters[1].jurisdiction"
            ),
        ),
        (
            change("models: [meta-llama/Llama-3.1-8B]", "models: [gpt]"),
            "#3: spec.models[0]: 'gpt': is no model of the Fleet",
        ),
        (
            change("models: [meta-llama/Llama-3.1-8B]", "models: [llama]"),
            "#3: spec.models[0]: 'llama': is an alias; grant 'meta-llama/Llama-3.1-8B'",
        ),
        (
            change("denyRegions: [us-east]", "denyRegions: [us-eats]"),
            "#3: spec.residency.denyRegions[0]: 'us-eats': warning: no cluster is there",
        ),
        (
            change("allowJurisdictions: [eu]", "allowJurisdictions: [eu, uk]"),
            "#3: spec.residency.allowJurisdictions[1]: 'uk': warning: no cluster is there",
        ),
        (
            change("models: [meta-llama/Llama-3.1-8B]", "models: []"),
            (
                "#3: spec.models: a list of 0: grants no model; "
                "if that is meant, add `waive: [tenant-without-model-grant]`"
            ),
        ),
        (
            change("models: [meta-llama/Llama-3.1-8B]", "models: []\n  waive: [tenant-without-model-grant]"),
            "#3: spec.models: a list of 0: warning: grants no model (tenant-without-model-grant is waived)",
        ),
        (
            change("models: [meta-llama/Llama-3.1-8B]", "models: ['*']"),
            (
                "#3: spec.models: '*': grants every model, future ones too; "
                "if that is meant, add `waive: [wildcard-grant]`"
            ),
        ),
        (
            change("models: [meta-llama/Llama-3.1-8B]", "models: ['*']\n  waive: [wildcard-grant]"),
            "#3: spec.models: '*': warning: grants every model, future ones too (wildcard-grant is waived)",
        ),
        (
            change("grpcPort: 0}", "grpcPort: 7000}"),
            (
                "#5: spec.regions[1].grpcPort: '127.0.0.1:7000': port is declared twice; "
                "first in (text)#5: spec.regions[0].grpcPort"
            ),
        ),
        (
            change("{region: us-east, jurisdiction: us,", "{region: eu-west, jurisdiction: eu,"),
            (
                "#5: spec.regions[1].region: 'eu-west': region is declared twice; "
                "first in (text)#5: spec.regions[0].region"
            ),
        ),
        (
            change("simulatedPods: 2", "simulatedPods: 0"),
            "#5: spec.pickers[0].pools[0].pods: a list of 0: the pool has no pod at all",
        ),
        (
            change('address: "127.0.0.1:8100"}]', 'address: "a:1"}, {id: mistral-0, address: "b:1"}]'),
            (
                "#5: spec.pickers[0].pools[1].pods[1].id: 'mistral-0': pod is declared twice; "
                "first in (text)#5: spec.pickers[0].pools[1].pods[0].id"
            ),
        ),
        (
            change(MISTRAL, MISTRAL + "    - name: unserved\n"),
            ": spec.models[2].name: 'unserved': warning: is served by no cluster",
        ),
        (
            change("8B, simulatedPods: 1", "9B, simulatedPods: 1"),
            "#5: spec.pickers[1].pools[0].model: 'meta-llama/Llama-3.1-9B': is no model of the Fleet",
        ),
    ],
)
def test_each_contradiction_is_found_once_and_named(text: str, line: str) -> None:
    assert problems(text) == [line]


def test_a_picker_must_belong_to_a_cluster_of_the_fleet() -> None:
    found = problems(change("cluster: us-east-a", "cluster: us-east-b"))
    assert found == ["#5: spec.pickers[1].cluster: 'us-east-b': is no cluster of the Fleet"]


def test_a_cluster_is_started_once() -> None:
    found = problems(change("cluster: us-east-a", "cluster: eu-west-a"))
    assert found == [
        (
            "#5: spec.pickers[1].cluster: 'eu-west-a': picker is declared twice; "
            "first in (text)#5: spec.pickers[0].cluster"
        )
    ]


def test_models_of_clusters_started_elsewhere_are_not_doubted() -> None:
    elsewhere = "    - {id: ap-a, region: ap, jurisdiction: in, gatewayUrl: http://h}\n  models:\n"
    text = change("  models:\n", elsewhere).replace(MISTRAL, MISTRAL + "    - name: unserved\n", 1)
    assert problems(text) == []


def test_a_fleet_without_clusters_serves_nothing() -> None:
    text = "apiVersion: gir.dev/v1alpha1\nkind: Fleet\nmetadata: {name: x}\nspec:\n  clusters: []\n  models: [{name: m}]\n"
    assert problems(text) == [": spec.models[0].name: 'm': warning: is served by no cluster"]


def test_tenants_alone_are_checked_as_far_as_they_go() -> None:
    assert problems(example.TENANT) == [
        ": spec.models: '(fleet)': warning: no Fleet was given, so grants are not checked"
    ]


def test_a_second_fleet_and_a_second_site_are_refused() -> None:
    fleet = example.FLEET.replace("eu-west-a", "eu-west-b").replace("us-east-a", "us-east-b")
    found = problems(example.EVERYTHING + "---\n" + fleet + "---\n" + example.SITE)
    assert "#6: kind: 'Fleet': a second Fleet; the first is in (text)" in found
    assert "#7: kind: 'Site': a second Site; the first is in (text)#5" in found
