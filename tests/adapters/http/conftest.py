"""The socket tests run on both event loops: uvloop in production, asyncio wherever it is missing."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    config: pytest.Config,  # noqa: ARG001  # the hook's shape
    item: pytest.Item,  # noqa: ARG001  # the hook's shape
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
