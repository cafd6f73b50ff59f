"""Session affinity as a configuration file asks for it, and LoRA adapters by name, through a running picker."""

import asyncio
from pathlib import Path

import httpx

from tests.endpoint_picker.cluster import MODEL, Cluster
from tests.scenarios.picker.asking import QUICK, ask, config_file, direct_cluster, pod_for, refusal
from tests.support.wait import eventually

SESSIONS = """
plugins:
  - {type: session-affinity-filter}
  - {type: round-robin-picker}
schedulingProfiles:
  - name: default
    plugins: [{pluginRef: session-affinity-filter}, {pluginRef: round-robin-picker}]
"""
ADAPTER = "sql-lora"
PODS = {"engine": QUICK, "max_loras": 2, "loras": [ADAPTER]}
LONG = 50_000


async def test_a_session_stays_with_its_pod_and_others_take_turns(tmp_path: Path) -> None:
    async with direct_cluster(3, scheduling=config_file(tmp_path, SESSIONS)) as cluster:
        home = await pod_for(cluster.client, "hello", x_session_id="talk-1")
        served = [await pod_for(cluster.client, "hello") for _ in range(3)]
        assert len(set(served)) == 3
        for _ in range(4):
            assert await pod_for(cluster.client, "hello again", x_session_id="talk-1") == home


async def test_a_session_token_names_its_pod_and_each_answer_brings_one(tmp_path: Path) -> None:
    async with direct_cluster(3, scheduling=config_file(tmp_path, SESSIONS)) as cluster:
        first = await ask(cluster.client, "hello")
        token, home = first.headers["x-session-token"], first.headers["x-gir-endpoint"]
        for _ in range(4):
            again = await ask(cluster.client, "hello again", x_session_token=token)
            assert (again.headers["x-gir-endpoint"], again.headers["x-session-token"]) == (home, token)
        strange = await ask(cluster.client, "hello", x_session_token="bm9ib2R5")
        assert strange.status_code == 200


async def test_a_session_moves_on_when_its_pod_is_gone(tmp_path: Path) -> None:
    async with direct_cluster(2, scheduling=config_file(tmp_path, SESSIONS)) as cluster:
        home = await pod_for(cluster.client, "hello", x_session_id="talk-1")
        cluster.pods[int(home[-1])].reset()
        await eventually(lambda: cluster.state(home) == "FAILED")
        other = await pod_for(cluster.client, "hello", x_session_id="talk-1")
        assert other != home
        assert await pod_for(cluster.client, "hello", x_session_id="talk-1") == other


async def test_a_profile_without_sessions_keeps_none() -> None:
    async with direct_cluster(1) as cluster:
        answer = await ask(cluster.client, "hello", x_session_id="talk-1")
        assert "x-session-token" not in answer.headers
        assert cluster.picker.life.sessions is None


async def models(cluster: Cluster) -> set[str]:
    listed = (await cluster.client.get("/v1/models")).json()["data"]
    return {model["id"] for model in listed}


async def test_f028_an_unknown_model_is_404_in_openais_words_and_takes_no_place() -> None:
    async with direct_cluster(1) as cluster:
        assert refusal(await ask(cluster.client, "hello", "no-such")) == (404, "model_not_found")
        assert cluster.picker.observer.table["pod-0"].in_flight == 0
        assert cluster.picker.life.running == 0


async def test_f029_an_adapter_is_learned_from_the_pod_that_runs_it_and_draws_its_requests() -> None:
    async with direct_cluster(3, pod=PODS) as cluster, asyncio.TaskGroup() as scope:
        assert refusal(await ask(cluster.client, "hello", ADAPTER)) == (404, "model_not_found")
        assert await models(cluster) == {MODEL}
        # All are equally busy, one of them with the adapter: none is above the bound on affinity.
        running = [
            scope.create_task(_straight_to(pod.address, ADAPTER if number == 1 else MODEL))
            for number, pod in enumerate(cluster.pods)
        ]
        table = cluster.picker.observer.table
        await eventually(lambda: all(pod.reading and pod.reading.running == 1 for pod in table))
        await eventually(lambda: ADAPTER in cluster.picker.life.declared.models.names())
        assert await models(cluster) == {MODEL, ADAPTER}
        for number in range(6):
            answer = await ask(cluster.client, f"{number} select", ADAPTER)
            assert (answer.status_code, answer.headers["x-gir-endpoint"]) == (200, "pod-1")
            assert answer.json()["model"] == ADAPTER
        for task in running:
            task.cancel()


async def _straight_to(address: str, model: str) -> None:
    """A long request that the picker does not see."""
    async with httpx.AsyncClient(base_url=f"http://{address}") as pod:
        await ask(pod, "in use", model, max_tokens=LONG)


async def test_a_declared_adapter_is_served_and_listed_before_any_pod_reports_it() -> None:
    declared = [
        {
            "name": "chat",
            "models": [{"name": MODEL, "aliases": ["llama"], "adapters": [ADAPTER]}],
            "endpoints": [],
        }
    ]
    async with direct_cluster(0, pools=declared) as cluster:
        assert await models(cluster) == {MODEL, "llama", ADAPTER}
        assert refusal(await ask(cluster.client, "hello", ADAPTER)) == (503, "no_endpoints")


async def test_f031_a_padded_name_is_refused_and_never_forwarded() -> None:
    async with direct_cluster(1) as cluster:
        for name in (f" {MODEL} ", MODEL.upper(), f"{MODEL}\0"):
            answer = await ask(cluster.client, "hello", name)
            assert answer.status_code in (400, 404)
        assert cluster.picker.observer.counters.picks == 0
