"""Control headers: what is read, what is refused, and that residency fails closed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.inference import TrafficClass
from services.core.locality import Jurisdiction, Region
from services.core.residency import ANYWHERE, ResidencyRule
from services.wire.control_headers import BadHeaderError, Controls, read_controls, read_residency


def read(**headers: bytes) -> Controls:
    named = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return read_controls(named.get)


def test_without_headers_nothing_is_asked_for() -> None:
    assert read() == Controls("", TrafficClass.INTERACTIVE, ANYWHERE, None)


def test_each_header_is_read() -> None:
    controls = read(x_request_id=b"abc-1", x_gir_class=b"batch", x_gir_residency=b"eu", x_gir_session=b"s1")
    assert controls.client_request_id == "abc-1"
    assert controls.traffic_class is TrafficClass.BATCH
    assert controls.residency == ResidencyRule(frozenset({Jurisdiction("eu")}))
    assert controls.session == "s1"


@pytest.mark.parametrize("value", [b"", b"x" * 129, b"a b", b"\xc3\xa9", b"a\n"])
def test_an_unpresentable_client_id_is_dropped_not_refused(value: bytes) -> None:
    assert read(x_request_id=value).client_request_id == ""


@pytest.mark.parametrize("value", [b"", b"Batch", b"fast", b"batch, batch"])
def test_an_unknown_class_is_refused(value: bytes) -> None:
    with pytest.raises(BadHeaderError, match="x-gir-class"):
        read(x_gir_class=value)


@pytest.mark.parametrize("value", [b"", b"x" * 129, b"a b"])
def test_a_bad_session_is_refused(value: bytes) -> None:
    with pytest.raises(BadHeaderError, match="x-gir-session"):
        read(x_gir_session=value)


def test_residency_lists_jurisdictions_and_regions() -> None:
    rule = read_residency(b" eu , uk, region:eu-west ")
    assert rule.allow_jurisdictions == frozenset({Jurisdiction("eu"), Jurisdiction("uk")})
    assert rule.allow_regions == frozenset({Region("eu-west")})
    assert read_residency(b"region:eu-west").allow_jurisdictions is None


@pytest.mark.parametrize(
    "value", [b"", b",", b"eu,", b"EU", b"e", b"eu;us", b"region:", b"*", b"\xff", b"eu," * 40]
)
def test_a_malformed_residency_is_refused_never_ignored(value: bytes) -> None:
    with pytest.raises(BadHeaderError, match="x-gir-residency"):
        read_residency(value)


@given(st.binary(max_size=60))
def test_any_residency_header_narrows_or_is_refused(value: bytes) -> None:
    """No byte string makes an x-gir-residency header that allows everything."""
    try:
        rule = read_residency(value)
    except BadHeaderError:
        return
    assert not rule.unrestricted
