"""Residency: the places a request's content may touch, as sets that only narrow.

Allowed set = tenant policy, intersected with the token, intersected with the
request header; an empty intersection is a refusal, never "anywhere". Judged on
jurisdictions and regions; an unknown place is outside every rule. Apart from the
filters because doors (transit), attempts and tier 1 judge by the same rule.
"""

from dataclasses import dataclass
from typing import TypeVar

from services.core.locality import Jurisdiction, Locality, Region

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ResidencyRule:
    """One source's rule: `None` allows every value of that kind; deny always wins.

    `allow_jurisdictions` and `allow_regions` must both hold when both are given.
    """

    allow_jurisdictions: frozenset[Jurisdiction] | None = None
    allow_regions: frozenset[Region] | None = None
    deny_jurisdictions: frozenset[Jurisdiction] = frozenset()
    deny_regions: frozenset[Region] = frozenset()

    @property
    def unrestricted(self) -> bool:
        """Whether the rule excludes nothing at all."""
        return (
            self.allow_jurisdictions is None
            and self.allow_regions is None
            and not self.deny_jurisdictions
            and not self.deny_regions
        )

    @property
    def nowhere(self) -> bool:
        """Whether the rule can hold at no place at all (an empty intersection)."""
        return _exhausted(self.allow_jurisdictions, self.deny_jurisdictions) or _exhausted(
            self.allow_regions, self.deny_regions
        )

    def allows(self, place: Locality) -> bool:
        """Whether content may be at `place`; a place without a name satisfies only a rule that excludes nothing."""
        if not place.jurisdiction or not place.region:
            return self.unrestricted
        if place.jurisdiction in self.deny_jurisdictions or place.region in self.deny_regions:
            return False
        if self.allow_jurisdictions is not None and place.jurisdiction not in self.allow_jurisdictions:
            return False
        return self.allow_regions is None or place.region in self.allow_regions


ANYWHERE = ResidencyRule()


def narrow(first: ResidencyRule, second: ResidencyRule) -> ResidencyRule:
    """Return the rule that holds exactly where both hold; it never widens either."""
    if second is ANYWHERE or second.unrestricted:
        return first
    if first.unrestricted:
        return second
    return ResidencyRule(
        _meet(first.allow_jurisdictions, second.allow_jurisdictions),
        _meet(first.allow_regions, second.allow_regions),
        first.deny_jurisdictions | second.deny_jurisdictions,
        first.deny_regions | second.deny_regions,
    )


def _exhausted(allowed: frozenset[T] | None, denied: frozenset[T]) -> bool:
    return allowed is not None and allowed <= denied


def _meet(first: frozenset[T] | None, second: frozenset[T] | None) -> frozenset[T] | None:
    if first is None:
        return second
    return first if second is None else first & second
