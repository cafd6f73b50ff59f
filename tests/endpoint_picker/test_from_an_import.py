"""A picker run by what `gir import` makes of an InferenceGatewayConfig: each request is served by its pool's pod."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from services.cli.main import main
from services.endpoint_picker.assembly import build
from services.endpoint_picker.settings import PickerSettings
from services.simulator.assembly import RunningPod
from services.wire.config.yaml_writer import write_yaml
from tests.endpoint_picker.cluster import WAIT_S, chat, simulated_pod
from tests.support.wait import eventually
from tests.wire.config.gateways import CONFIG, changed

BIG, SMALL = "Qwen/Qwen2.5-1.5B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct"
CANARY = {
    "name": "sql-canary",
    "pool": "qwen",
    "rules": [
        {
            "matches": ["sql-lora"],
            "targets": [{"model": "sql-lora", "weight": 1}, {"model": "chat-lora", "weight": 1}],
        }
    ],
}


def imported(folder: Path, small_timeout: str) -> Path:
    """Return the file of an imported gateway to which a canary was added."""
    config, gateway = folder / "igc.yaml", folder / "gateway.yaml"
    small = changed(
        CONFIG["spec"]["schedulers"][1],
        ("weights", {"queue": 1}),
        ("modelName", SMALL),
        ("routeTimeout", small_timeout),
    )
    del small["configMapRef"]
    config.write_text(write_yaml([changed(CONFIG, ("spec.schedulers.1", small))]))
    assert main(["import", str(config), "--write", str(gateway)]) == 0
    document = yaml.safe_load(gateway.read_text())
    document["spec"]["rewrites"] = [CANARY]
    gateway.write_text(write_yaml([document]))
    assert main(["validate", str(gateway)]) == 0
    return gateway


def settings(gateway: Path, pods: dict[str, RunningPod]) -> PickerSettings:
    pools = [
        {"name": name, "endpoints": [{"id": f"{name}-0", "address": pod.address}]}
        for name, pod in pods.items()
    ]
    ports: dict[str, Any] = {name: {"port": 0} for name in ("http", "grpc", "metrics")}
    document = {
        "cluster": "eu-west-1",
        "region": "eu-west",
        "jurisdiction": "eu",
        "gateway": gateway,
        "pools": pools,
        "scrape": {"interval_ms": 50},
    }
    return PickerSettings.model_validate(document | ports | {"http": {"port": 0, "accept": "direct"}})


class World:
    """Two pools of one pod each behind a picker. A pod answers 404 for a name that it does not serve."""

    def __init__(self, pods: dict[str, RunningPod], client: httpx.AsyncClient) -> None:
        self.pods = pods
        self.client = client

    async def ask(self, model: str) -> httpx.Response:
        return await self.client.post("/v1/chat/completions", json=chat(model=model, max_tokens=1))

    async def served(self, model: str) -> tuple[int, str, str]:
        """Return the status, the pod that answered and the model's name in the answer."""
        answer = await self.ask(model)
        return answer.status_code, answer.headers["x-inference-pod"], answer.json()["model"]


@asynccontextmanager
async def world_of(folder: Path, small_timeout: str = "60s") -> AsyncIterator[World]:
    pods = {
        "qwen": await simulated_pod(0, pod="big", model=BIG, loras=["sql-lora", "chat-lora"]),
        "qwen-small": await simulated_pod(1, pod="small", model=SMALL),
    }
    picker = build(settings(imported(folder, small_timeout), pods))
    await picker.start()
    try:
        table = picker.observer.table
        await eventually(lambda: all(table.ready(pool) for pool in pods))
        url = f"http://127.0.0.1:{picker.http_port}"
        async with httpx.AsyncClient(base_url=url, timeout=WAIT_S) as client:
            yield World(pods, client)
    finally:
        await picker.abort()
        for pod in pods.values():
            await pod.stop()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(tmp_path) as found:
        yield found


async def test_each_request_is_served_by_the_pool_of_its_name(world: World) -> None:
    assert await world.served(BIG) == (200, "big", BIG)
    assert await world.served(SMALL) == (200, "small", SMALL)
    assert await world.served("chat-lora") == (200, "big", "chat-lora")
    listed = (await world.client.get("/v1/models")).json()["data"]
    assert {model["id"] for model in listed} == {BIG, SMALL, "sql-lora", "chat-lora"}


async def test_a_name_that_nobody_serves_goes_to_the_default_pool(world: World) -> None:
    answer = await world.ask("unheard-of")
    assert (answer.status_code, answer.headers["x-inference-pod"]) == (404, "big")


async def test_a_canary_takes_its_share_under_the_name_that_was_asked_for(world: World) -> None:
    engine = world.pods["qwen"].engine
    assert engine.resident_adapters == ()
    for _ in range(40):
        assert await world.served("sql-lora") == (200, "big", "sql-lora")
    assert set(engine.resident_adapters) == {"sql-lora", "chat-lora"}


async def test_a_body_larger_than_the_document_allows_is_refused(world: World) -> None:
    body = chat(model=BIG) | {"user": "x" * CONFIG["spec"]["bbr"]["maxRequestBodyBytes"]}
    assert (await world.client.post("/v1/chat/completions", json=body)).status_code == 413


async def test_a_pools_timeout_ends_what_takes_longer(tmp_path: Path) -> None:
    async with world_of(tmp_path, small_timeout="200ms") as found:
        found.pods["qwen-small"].configure({"extra_ttft_ms": 5_000})
        assert (await found.ask(SMALL)).status_code == 504
        assert (await found.ask(BIG)).status_code == 200
