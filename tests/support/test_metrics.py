"""Reading a metrics page, from a page that is served as services serve theirs."""

import asyncio

import pytest

from deploy.stack.ports import free_port
from services.adapters.http.page import PageServer
from tests.support.metrics import read_metrics

PAGE = b'# HELP a What.\n# TYPE a gauge\na 1.0\na_total{result="o k"} 2.5\n\n'


async def test_samples_are_keyed_as_they_are_printed() -> None:
    server = PageServer(b"/metrics", "text/plain", lambda: PAGE)
    port = await server.listen("127.0.0.1", 0)
    assert await asyncio.to_thread(read_metrics, port) == {"a": 1.0, 'a_total{result="o k"}': 2.5}
    await server.close()


def test_nobody_there_is_an_error() -> None:
    with pytest.raises(OSError, match="refused"):
        read_metrics(free_port())
