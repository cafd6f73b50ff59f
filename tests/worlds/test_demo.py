"""The demo end to end in this process, as a newcomer's client meets it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from openai import AsyncOpenAI, PermissionDeniedError
from openai.types.chat import ChatCompletionMessageParam

from services.core.fleet import HealthState
from services.worlds.demo import (
    CannotStartError,
    Demo,
    DemoOptions,
    running_demo,
    stay,
    told_to_stop,
    welcome,
)
from services.worlds.table_rows import cluster_rows, door_rows
from services.worlds.topology import EU_TENANT, LARGE_ALIAS, LARGE_MODEL, SMALL_MODEL, Bus
from services.worlds.topology_ports import HostPorts

pytestmark = pytest.mark.scenario


def base_port() -> int:
    ports = HostPorts()
    while True:
        port = ports.next_free(21_080)
        if all(ports.next_free(port + step) == port + step for step in (100, 200)):
            return port


@pytest_asyncio.fixture
async def demo(tmp_path: Path) -> AsyncIterator[Demo]:
    async with running_demo(DemoOptions(base_port(), tmp_path / "state")) as running:
        yield running


def client_of(demo: Demo, region: str, tenant: str = "acme") -> AsyncOpenAI:
    return AsyncOpenAI(
        base_url=f"http://127.0.0.1:{demo.door(region)}/v1",
        api_key=demo.keys.token(tenant, demo.world.clock),
        max_retries=0,
    )


async def test_a_client_is_served_through_all_tiers_and_the_fleet_survives_a_region(demo: Demo) -> None:
    async with client_of(demo, "eu-west") as client:
        messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]
        answer = await client.chat.completions.with_raw_response.create(
            model=SMALL_MODEL,
            messages=messages,
            max_tokens=4,
        )
        assert answer.headers["x-gir-region"] == "eu-west"
        assert answer.parse().choices[0].message.content
        stream = await client.chat.completions.create(
            model=LARGE_ALIAS, messages=messages, max_tokens=8, stream=True
        )
        assert [chunk.choices[0].delta.content async for chunk in stream if chunk.choices]
        assert {model.id for model in (await client.models.list()).data} >= {SMALL_MODEL, LARGE_MODEL}

        await demo.world.kill("us-east")
        for _ in range(8):
            answer = await client.chat.completions.with_raw_response.create(
                model=LARGE_MODEL,
                messages=messages,
                max_tokens=4,
            )
            assert answer.headers["x-gir-region"] == "ap-south"
        await demo.world.restart("us-east")
    async with client_of(demo, "us-east") as client:
        assert (await client.models.list()).data


async def test_the_eu_tenant_is_refused_rather_than_served_elsewhere(demo: Demo) -> None:
    async with client_of(demo, "us-east", EU_TENANT) as client:
        with pytest.raises(PermissionDeniedError):
            await client.chat.completions.create(
                model=SMALL_MODEL, messages=[{"role": "user", "content": "hello"}]
            )


async def pasted(*lines: str) -> bytes:
    """Return what a shell prints for `lines`."""
    shell = await asyncio.create_subprocess_shell("\n".join(lines), stdout=asyncio.subprocess.PIPE)
    return (await shell.communicate())[0]


async def test_the_welcome_is_ready_to_paste_and_the_table_shows_every_cluster(demo: Demo) -> None:
    text = welcome(demo)
    lines = text.splitlines()
    export = next(line for line in lines if line.startswith("export GIR_TOKEN="))
    anywhere, in_the_eu = (line for line in lines if line.startswith("curl "))
    assert (await pasted(export, anywhere)).rstrip().endswith(b"data: [DONE]")
    assert b"residency_unsatisfiable" in await pasted(export, in_the_eu)
    rows = cluster_rows(demo.world)
    assert [(row.cluster, row.ready, row.total) for row in rows] == [
        ("eu-west-1", 3, 3),
        ("eu-west-2", 3, 3),
        ("us-east-1", 3, 3),
        ("us-east-2", 3, 3),
        ("ap-south-1", 4, 4),
    ]
    assert {row.state for row in rows} <= {HealthState.HEALTHY, HealthState.DEGRADED}
    assert [(row.region, row.requests) for row in door_rows(demo.world)] == [
        ("eu-west", 2),
        ("us-east", 0),
        ("ap-south", 0),
    ]


async def test_it_stays_until_a_signal(demo: Demo, capsys: pytest.CaptureFixture[str]) -> None:
    stop = told_to_stop()
    os.kill(os.getpid(), signal.SIGTERM)
    assert await stay(demo.world, stop) == 0
    assert "eu-west-1=" in capsys.readouterr().out


async def test_a_part_that_ended_by_itself_ends_the_demo_with_1(demo: Demo) -> None:
    demo.world.failed.set()
    assert await stay(demo.world, asyncio.Event()) == 1


async def test_a_second_demo_on_the_same_doors_is_told_to_choose_others(demo: Demo, tmp_path: Path) -> None:
    options = DemoOptions(demo.door("eu-west"), tmp_path / "other")
    with pytest.raises(CannotStartError, match="--base-port") as refused:
        async with running_demo(options):
            pass
    assert refused.value.code == 2


async def test_real_parts_that_do_not_answer_end_it_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.worlds.demo.REACH_TIMEOUT", 300_000_000)
    options = DemoOptions(base_port(), tmp_path, Bus("127.0.0.1:1", "redis://127.0.0.1:1"))
    with pytest.raises(CannotStartError, match=r"redis 127\.0\.0\.1:1") as refused:
        async with running_demo(options):
            pass
    assert refused.value.code == 3
