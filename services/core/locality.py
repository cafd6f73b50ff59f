"""Where things are: regions, jurisdictions, clusters, and how far apart they stand.

Pure names and one distance; no discovery and no measured latency (that is load,
in `fleet`). Apart because residency and failover both stand on it.
"""

import enum
import re
from dataclasses import dataclass
from typing import NewType

Region = NewType("Region", str)
Zone = NewType("Zone", str)
ClusterId = NewType("ClusterId", str)
Jurisdiction = NewType("Jurisdiction", str)

JURISDICTION_PATTERN = re.compile(r"[a-z0-9-]{2,32}\Z")
NAME_PATTERN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?\Z")
"""DNS-label-like names (RFC 1123, dots allowed) for regions, zones and clusters: they become
Kafka keys, Redis fields, header values and metric labels without escaping."""


class Distance(enum.IntEnum):
    """How far a cluster is from a door; the order is the failover priority (Envoy's P0, P1, P2)."""

    SAME_REGION = 0
    SAME_JURISDICTION = 1
    OTHER = 2


@dataclass(frozen=True, slots=True)
class Locality:
    """A place: region inside a jurisdiction (a legal area such as `eu`)."""

    region: Region
    jurisdiction: Jurisdiction


def distance(here: Locality, there: Locality) -> Distance:
    """Return the priority level of `there` seen from `here`."""
    if here.region == there.region:
        return Distance.SAME_REGION
    if here.jurisdiction == there.jurisdiction:
        return Distance.SAME_JURISDICTION
    return Distance.OTHER


def check_name(value: str, what: str) -> str:
    """Return `value` if it is a legal name, else raise `ValueError` naming `what` and the rule."""
    if not NAME_PATTERN.match(value):
        raise ValueError(
            f"{what} {value!r}: must be 1-63 characters of a-z, 0-9, '.', '-', starting and ending alphanumeric"
        )
    return value


def check_jurisdiction(value: str) -> str:
    """Return `value` if it is a legal jurisdiction code, else raise `ValueError` with the rule."""
    if not JURISDICTION_PATTERN.match(value):
        raise ValueError(f"jurisdiction {value!r}: must match [a-z0-9-]{{2,32}}")
    return value
