"""Addresses and paths of model servers: one spelling, or a refusal that says why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.endpoint_picker.addresses import join, normal_path, split


@pytest.mark.parametrize("host", ["fd00::1", "[fd00::1]"])
def test_f013_an_ipv6_host_stands_in_exactly_one_pair_of_brackets(host: str) -> None:
    assert join(host, 8000) == "[fd00::1]:8000"


@pytest.mark.parametrize(("host", "port"), [("10.0.0.1", 1), ("pod-0.svc.local", 8000), ("a", 65535)])
def test_names_and_ipv4_stand_as_they_are(host: str, port: int) -> None:
    assert join(host, port) == f"{host}:{port}"


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("", 1),
        ("a b", 1),
        ("a/b", 1),
        ("[a]", 1),
        ("fd00::g", 1),
        ("user@h", 1),
        ("h", 0),
        ("h", 65536),
        ("é", 1),
    ],
)
def test_what_is_no_host_or_port_is_refused(host: str, port: int) -> None:
    with pytest.raises(ValueError, match=r"host|port"):
        join(host, port)


@pytest.mark.parametrize(
    "address", ["h", "h:", ":1", "fd00::1", "[fd00::1]", "h:01", "h:1x", "h:999999999999", "h:٣"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"address|host|port"):
        split(address)


@given(st.sampled_from(["10.0.0.1", "fd00::1", "::1", "pod-0"]), st.integers(1, 65535))
def test_splitting_undoes_joining(host: str, port: int) -> None:
    """Invariant: split(join(host, port)) gives the host without brackets and the port."""
    assert split(join(host, port)) == (host, port)


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("/metrics ", "/metrics"),
        ("metrics", "/metrics"),
        ("//metrics", "/metrics"),
        ("/a/b?x=1", "/a/b?x=1"),
        ("", "/"),
    ],
)
def test_f011_a_path_is_normalised(path: str, normal: str) -> None:
    assert normal_path(path) == normal


@pytest.mark.parametrize("path", ["/met rics", "/a\nb", "/a\r\nx: y", "/é", "/a#b", "/a?b c"])
def test_f011_a_path_that_no_request_could_carry_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="metrics path"):
        normal_path(path)
