import socket
from collections.abc import Iterator

import pytest

from services.adapters.grpc.binding import BindError, Listen, check, is_loopback


@pytest.fixture
def busy() -> Iterator[socket.socket]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_leave(host: str) -> None:
    check(Listen(host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com", "", "127.0.0.1.evil.test"])
def test_other_addresses_are_refused_without_leave(host: str) -> None:
    with pytest.raises(BindError, match="not a loopback address, and the traffic is plain text"):
        check(Listen(host))


def test_other_addresses_are_allowed_with_leave() -> None:
    check(Listen("0.0.0.0", insecure_bind=True))


def test_a_busy_port_is_named(busy: socket.socket) -> None:
    port = busy.getsockname()[1]
    with pytest.raises(BindError, match=f"^gRPC 127.0.0.1:{port}: address already in use$"):
        check(Listen(port=port))


@pytest.mark.parametrize(
    ("listen", "why"),
    [
        (Listen("192.0.2.1", insecure_bind=True), "gRPC 192.0.2.1:0: cannot assign requested address"),
        (Listen("no.such.host.invalid", insecure_bind=True), "gRPC no.such.host.invalid:0: "),
        (Listen("x" * 70, insecure_bind=True), "gRPC x{70}:0: "),
        (Listen(port=70_000), "gRPC 127.0.0.1:70000: "),
    ],
)
def test_impossible_addresses_are_named(listen: Listen, why: str) -> None:
    with pytest.raises(BindError, match=why):
        check(listen)


def test_processes_that_share_a_port_may_bind_it_together() -> None:
    with socket.socket() as first:
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        first.bind(("127.0.0.1", 0))
        first.listen()
        check(Listen(port=first.getsockname()[1], reuse_port=True))


def test_ipv6_addresses_are_bracketed_once() -> None:
    assert Listen("::1", 7000).address == Listen("[::1]", 7000).address == "[::1]:7000"
    assert Listen("127.0.0.1", 7000).address == "127.0.0.1:7000"


def test_a_name_is_not_loopback_by_its_spelling() -> None:
    assert is_loopback("localhost")
    assert not is_loopback("localhost.example.com")
