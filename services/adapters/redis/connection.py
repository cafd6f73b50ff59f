"""Connections to one Redis: bounded pools, deadlines on every socket, one translation of errors.

No keys and no scripts here. Apart from the store because every store on Redis wants the
same limits and the same answer to a server that is away, loading, read-only or full.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError, RedisError

from services.adapters.ports import UnreachableError

SOCKET_TIMEOUT_S = 2.0
"""A regional Redis answers in milliseconds; one that is silent this long is away."""

HEALTH_CHECK_S = 5
"""A pooled connection idle this long is pinged before use, so that a half-open one is not handed out."""

POOL_CONNECTIONS = 8
"""Calls of one store in flight at once; the next one waits its turn, at most `SOCKET_TIMEOUT_S`."""


def connect(url: str, max_connections: int = POOL_CONNECTIONS) -> "Redis":
    """Return a client for `redis://` or `rediss://`; nothing is connected before the first call.

    A call that meets a connection the server has closed (a restart) is tried once more on a new one;
    every call of the store may be repeated. Nothing else is retried here: each caller has its own
    backoff, and a timeout stays one timeout.
    RESP2, because its replies have one shape whatever the server's version.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=SOCKET_TIMEOUT_S,
        socket_timeout=SOCKET_TIMEOUT_S,
        socket_connect_timeout=SOCKET_TIMEOUT_S,
        socket_keepalive=True,
        health_check_interval=HEALTH_CHECK_S,
        retry=Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
        protocol=2,
    )
    return Redis.from_pool(pool)


def place_of(url: str) -> str:
    """Return `host:port/db` of a Redis URL, for messages: a URL may carry a password."""
    parts = urlsplit(url)
    return f"{parts.hostname or 'localhost'}:{parts.port or 6379}{parts.path}"


@asynccontextmanager
async def reaching(client: "Redis", place: str, asked: str) -> AsyncIterator[None]:
    """Turn every failure of Redis inside into `UnreachableError`, and let no cancellation be lost.

    Also the refusals that pass by themselves or by an operator's hand (LOADING, OOM, MISCONF,
    NOAUTH): the caller keeps what it has and asks again. READONLY means that this node is no longer
    the master, so its connections are dropped and the name is resolved anew at the next call.
    """
    task = asyncio.current_task()
    cancellations = task.cancelling() if task else 0
    try:
        yield
    except (RedisError, OSError) as failure:
        if isinstance(failure, ReadOnlyError):
            await client.connection_pool.disconnect()
        raise UnreachableError(
            f"redis {place}: {asked}: {str(failure) or type(failure).__name__}"
        ) from failure
    finally:
        # redis-py writes under `asyncio.wait_for`, which before Python 3.12 swallows a cancellation that
        # coincides with the end of the write; a loop over such calls would never end.
        if task is not None and task.cancelling() > cancellations:
            raise asyncio.CancelledError
