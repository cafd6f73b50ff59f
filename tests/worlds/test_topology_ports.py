import socket

import pytest

from services.worlds.topology_ports import LOOPBACK, HostPorts, PortTakenError


@pytest.fixture
def taken_port() -> "socket.socket":
    listening = socket.socket()
    listening.bind((LOOPBACK, 0))
    listening.listen()
    return listening


def test_a_port_in_use_is_refused_by_number(taken_port: socket.socket) -> None:
    port = taken_port.getsockname()[1]
    with taken_port, pytest.raises(PortTakenError, match=f"port {port} on 127.0.0.1 is in use") as refused:
        HostPorts().exactly(port)
    assert refused.value.port == port


def test_the_next_free_port_skips_one_in_use_and_ones_already_given(taken_port: socket.socket) -> None:
    port = taken_port.getsockname()[1]
    ports = HostPorts()
    with taken_port:
        first, second = ports.next_free(port), ports.next_free(port)
    assert port < first < second


def test_a_port_is_given_once(taken_port: socket.socket) -> None:
    ports = HostPorts()
    with taken_port:
        given = ports.next_free(taken_port.getsockname()[1])
    with pytest.raises(PortTakenError):
        ports.exactly(given)


def test_there_is_no_port_beyond_the_last() -> None:
    with pytest.raises(PortTakenError):
        HostPorts().next_free(65_536)
