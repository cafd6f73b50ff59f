"""A real Redis as tests and the local stack start it: emptied by restart or flush, kept on request, frozen, watched."""

from pathlib import Path

import pytest
import redis

from deploy.stack.errors import PartMissingError
from deploy.stack.redis import RedisSentinel, RedisServer
from tests.support.stack import made_or_skipped


def _run_id(server: RedisServer) -> str:
    with redis.Redis(port=server.port) as client:
        return str(client.info("server")["run_id"])


def test_the_shared_server_serves(redis_server: RedisServer, fresh_name: str) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.set(fresh_name, b"value")
        assert client.get(fresh_name) == b"value"


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_restarted_server_is_empty_and_another_incarnation(own_redis: RedisServer, end: str) -> None:
    before = _run_id(own_redis)
    with redis.Redis(port=own_redis.port) as client:
        client.set("key", b"value")
    getattr(own_redis, end)()
    own_redis.start()
    assert _run_id(own_redis) != before
    with redis.Redis(port=own_redis.port) as client:
        assert client.get("key") is None


def test_a_flushed_server_is_empty_and_the_same_incarnation(own_redis: RedisServer) -> None:
    before = _run_id(own_redis)
    with redis.Redis(port=own_redis.port) as client:
        client.set("key", b"value")
        own_redis.flush()
        assert client.get("key") is None
    assert _run_id(own_redis) == before


def test_data_are_kept_on_request(tmp_path: Path) -> None:
    server = made_or_skipped("redis", lambda: RedisServer(tmp_path, keep_data=True))
    server.start()
    try:
        with redis.Redis(port=server.port) as client:
            client.set("key", b"value")
        server.restart()
        with redis.Redis(port=server.port) as client:
            assert client.get("key") == b"value"
    finally:
        server.kill()


def test_a_frozen_server_answers_nothing_until_it_is_resumed(own_redis: RedisServer) -> None:
    with redis.Redis(port=own_redis.port, socket_timeout=0.2) as client:
        own_redis.pause()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        own_redis.resume()
    with redis.Redis(port=own_redis.port) as client:
        assert client.ping()


def test_sentinel_names_the_server_it_watches(own_redis: RedisServer, tmp_path: Path) -> None:
    sentinel = made_or_skipped("redis", lambda: RedisSentinel(tmp_path / "sentinel", own_redis.port))
    sentinel.start()
    try:
        with redis.Redis(port=sentinel.port, decode_responses=True) as client:
            watched = ["127.0.0.1", str(own_redis.port)]
            assert client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "gir") == watched
    finally:
        sentinel.stop()


def test_a_machine_without_redis_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PartMissingError, match="redis-server is not on PATH"):
        RedisServer(tmp_path)
