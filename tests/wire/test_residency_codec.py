import pytest
from hypothesis import given

from services.core.locality import Jurisdiction
from services.core.residency import ANYWHERE, ResidencyRule
from services.wire.errors import UndecodableError
from services.wire.gen.gir.v1 import residency_pb2
from services.wire.residency_codec import decode_residency, encode_residency
from tests.wire.strategies import residency_rules


@given(residency_rules())
def test_round_trip(rule: ResidencyRule) -> None:
    """Invariant: a rule survives the trip; no allow list and an empty one stay different."""
    assert decode_residency(encode_residency(rule), "rule") == rule


def test_no_allow_list_allows_everything_and_an_empty_one_nothing() -> None:
    assert decode_residency(residency_pb2.ResidencyRule(), "rule") is ANYWHERE
    nothing = residency_pb2.ResidencyRule(allow_jurisdictions=residency_pb2.NameSet())
    assert decode_residency(nothing, "rule").allow_jurisdictions == frozenset()
    assert decode_residency(nothing, "rule").allow_regions is None


def test_equal_rules_have_equal_bytes() -> None:
    names = [Jurisdiction("eu"), Jurisdiction("us"), Jurisdiction("in"), Jurisdiction("jp")]
    forward = encode_residency(ResidencyRule(frozenset(names), None, frozenset(), frozenset()))
    backward = encode_residency(ResidencyRule(frozenset(reversed(names)), None, frozenset(), frozenset()))
    assert forward.SerializeToString() == backward.SerializeToString()


@pytest.mark.parametrize(
    "message",
    [
        residency_pb2.ResidencyRule(deny_jurisdictions=["EU"]),
        residency_pb2.ResidencyRule(deny_regions=["eu_west"]),
        residency_pb2.ResidencyRule(allow_regions=residency_pb2.NameSet(names=["eu west"])),
        residency_pb2.ResidencyRule(allow_jurisdictions=residency_pb2.NameSet(names=["e"])),
    ],
)
def test_a_misspelt_name_is_refused_rather_than_ignored(message: residency_pb2.ResidencyRule) -> None:
    with pytest.raises(UndecodableError, match="route request: "):
        decode_residency(message, "route request")
