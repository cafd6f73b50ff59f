"""One page, on the wanted port or the next free one."""

import httpx

from services.adapters.http.page import PageServer


async def test_two_processes_on_one_host_get_ports_in_a_row() -> None:
    first, second = (PageServer(b"/metrics", "text/plain", name) for name in (lambda: b"one", lambda: b"two"))
    port = await first.listen("127.0.0.1", 0)
    other = await second.listen("127.0.0.1", port)
    assert other > port
    async with httpx.AsyncClient() as client:
        page = await client.get(f"http://127.0.0.1:{other}/metrics")
        assert (page.status_code, page.text) == (200, "two")
        assert page.headers["content-type"] == "text/plain"
        assert (await client.get(f"http://127.0.0.1:{port}/")).status_code == 404
    await first.close()
    await second.close()
