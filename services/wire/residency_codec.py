"""Residency rules: `ResidencyRule` values <-> messages of policy and requests.

The one distinction that must survive the trip: an absent allow list allows everything, an empty
one nothing. Names are checked, because a misspelt deny entry would silently deny nothing.
"""

from collections.abc import Iterable
from typing import Literal

from services.core.locality import Jurisdiction, Region
from services.core.residency import ANYWHERE, ResidencyRule
from services.wire.gen.gir.v1 import residency_pb2
from services.wire.messages import jurisdiction, name


def encode_residency(rule: ResidencyRule) -> residency_pb2.ResidencyRule:
    """Return the message of `rule`; names are sorted so that equal rules have equal bytes."""
    return residency_pb2.ResidencyRule(
        allow_jurisdictions=name_set(rule.allow_jurisdictions),
        allow_regions=name_set(rule.allow_regions),
        deny_jurisdictions=sorted(rule.deny_jurisdictions),
        deny_regions=sorted(rule.deny_regions),
    )


def decode_residency(message: residency_pb2.ResidencyRule, what: str) -> ResidencyRule:
    """Return the rule in `message`; raise `UndecodableError` naming `what` for an illegal name."""
    if not message.ByteSize():
        return ANYWHERE
    return ResidencyRule(
        _jurisdictions(message.allow_jurisdictions.names, what)
        if _has(message, "allow_jurisdictions")
        else None,
        _regions(message.allow_regions.names, what) if _has(message, "allow_regions") else None,
        _jurisdictions(message.deny_jurisdictions, what),
        _regions(message.deny_regions, what),
    )


def name_set(names: Iterable[str] | None) -> residency_pb2.NameSet | None:
    """Return the message of a set of names, None for no set at all."""
    return None if names is None else residency_pb2.NameSet(names=sorted(names))


def _has(
    message: residency_pb2.ResidencyRule, field: Literal["allow_jurisdictions", "allow_regions"]
) -> bool:
    return message.HasField(field)


def _jurisdictions(names: Iterable[str], what: str) -> frozenset[Jurisdiction]:
    return frozenset(Jurisdiction(jurisdiction(value, what)) for value in names)


def _regions(names: Iterable[str], what: str) -> frozenset[Region]:
    return frozenset(Region(name(value, what, "region")) for value in names)
