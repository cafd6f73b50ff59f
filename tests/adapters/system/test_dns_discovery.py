"""Discovery by DNS: the system's resolver for what every machine has, and a list of answers for the rest."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from services.adapters.memory.clock import VirtualClock
from services.adapters.system.clock import SystemClock
from services.adapters.system.dns_discovery import ASK_EVERY, DnsDiscovery, resolve_by_system
from services.core.pods.discovered import DiscoveredEndpoint

Answer = list[str] | OSError


def source(*answers: Answer) -> tuple[DnsDiscovery, VirtualClock]:
    """A source that gets these answers in turn, the last one for ever."""
    clock = VirtualClock()
    left = list(answers)

    async def resolve(host: str) -> list[str]:
        assert host == "pods.example"
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, OSError):
            raise answer
        return answer

    return DnsDiscovery("pods.example", (8000,), clock, resolve=resolve), clock


async def following(
    sets: AsyncGenerator[tuple[DiscoveredEndpoint, ...], None], clock: VirtualClock, asks: int
) -> list[list[str]]:
    """The addresses of each set yielded while the name is asked for `asks` times."""
    found: list[list[str]] = []

    async def read() -> None:
        async for each in sets:
            addresses = [endpoint.address for endpoint in each]
            found.append(addresses)

    task = asyncio.get_running_loop().create_task(read())
    await clock.settle()
    for _ in range(asks - 1):
        await clock.advance(ASK_EVERY)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return found


async def test_every_address_is_an_endpoint_named_after_it() -> None:
    dns, _ = source(["fd00::2", "10.0.0.10", "10.0.0.9"])
    endpoints = await anext(dns.sets())
    assert [(each.name, each.address, each.ports) for each in endpoints] == [
        ("10.0.0.9", "10.0.0.9", (8000,)),
        ("10.0.0.10", "10.0.0.10", (8000,)),
        ("fd00--2", "fd00::2", (8000,)),
    ]


async def test_only_another_set_is_news_not_another_order() -> None:
    dns, clock = source(["10.0.0.1", "10.0.0.2"], ["10.0.0.2", "10.0.0.1", "10.0.0.1"], ["10.0.0.2"])
    assert await following(dns.sets(), clock, 4) == [["10.0.0.1", "10.0.0.2"], ["10.0.0.2"]]


@pytest.mark.parametrize("failure", [OSError(-2, "Name or service not known"), []])
async def test_a_name_without_an_answer_keeps_the_set(
    failure: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    dns, clock = source(["10.0.0.1"], failure)
    assert await following(dns.sets(), clock, 4) == [["10.0.0.1"]]
    assert dns.trouble in {"pods.example: Name or service not known", "pods.example: no address"}
    assert len(caplog.records) == 1


async def test_an_answer_after_a_failure_ends_the_trouble() -> None:
    dns, clock = source(["10.0.0.1"], OSError("timed out"), ["10.0.0.1"], ["10.0.0.3"])
    assert await following(dns.sets(), clock, 4) == [["10.0.0.1"], ["10.0.0.3"]]
    assert dns.trouble == ""


async def test_the_systems_resolver_is_asked_by_default() -> None:
    assert "127.0.0.1" in await resolve_by_system("localhost")
    dns = DnsDiscovery("127.0.0.1", (8000, 8001), SystemClock())
    [endpoint] = await anext(dns.sets())
    assert (endpoint.address, endpoint.ports) == ("127.0.0.1", (8000, 8001))
    await dns.close()
