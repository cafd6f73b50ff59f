"""Background tasks are kept, reported and ended."""

import asyncio

from services.adapters.system.tasks import TaskScope


async def test_a_failing_task_is_reported_by_name() -> None:
    failures: list[tuple[str, BaseException]] = []
    scope = TaskScope(lambda name, error: failures.append((name, error)))

    async def fail() -> None:
        raise RuntimeError("broken")

    task = scope.spawn(fail(), "scrape")
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert [(name, str(error)) for name, error in failures] == [("scrape", "broken")]


async def test_close_ends_everything_and_reports_nothing() -> None:
    failures: list[str] = []
    ended = asyncio.Event()
    scope = TaskScope(lambda name, _: failures.append(name))

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    scope.spawn(forever(), "loop")
    await asyncio.sleep(0)
    await scope.close()
    assert ended.is_set()
    assert failures == []
    await scope.close()
