import pytest
from redis import exceptions

from services.adapters.ports import UnreachableError
from services.adapters.redis.connection import connect, place_of, reaching


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://127.0.0.1:6390/3", "127.0.0.1:6390/3"),
        ("redis://", "localhost:6379"),
        ("rediss://user:pa55word@redis.example:7000/0", "redis.example:7000/0"),
    ],
)
def test_a_place_names_host_port_and_database_and_never_the_password(url: str, place: str) -> None:
    assert place_of(url) == place


@pytest.mark.parametrize(
    "failure",
    [
        exceptions.BusyLoadingError("Redis is loading the dataset in memory"),
        exceptions.TimeoutError("Timeout reading from socket"),
        exceptions.ConnectionError(),
        exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
        exceptions.ReadOnlyError("You can't write against a read only replica."),
        exceptions.ResponseError("MISCONF Redis is configured to save RDB snapshots"),
        ConnectionResetError(104, "Connection reset by peer"),
    ],
)
async def test_every_failure_of_redis_becomes_one_error_that_says_where_what_and_why(
    failure: Exception,
) -> None:
    client = connect("redis://127.0.0.1:1/0")
    with pytest.raises(UnreachableError) as caught:
        async with reaching(client, "here:1/0", "list"):
            raise failure
    await client.aclose()
    message = str(caught.value)
    assert message.startswith("redis here:1/0: list: ")
    assert (str(failure) or type(failure).__name__) in message


async def test_other_errors_pass_unchanged() -> None:
    client = connect("redis://127.0.0.1:1/0")
    with pytest.raises(KeyError):
        async with reaching(client, "here", "list"):
            raise KeyError("a bug is not an outage")
    await client.aclose()
