"""Names that travel unescaped, and the distance that orders failover."""

import pytest

from services.core.locality import (
    Distance,
    Jurisdiction,
    Locality,
    Region,
    check_jurisdiction,
    check_name,
    distance,
)


def place(region: str, jurisdiction: str) -> Locality:
    return Locality(Region(region), Jurisdiction(jurisdiction))


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (place("eu-west", "eu"), Distance.SAME_REGION),
        (place("eu-north", "eu"), Distance.SAME_JURISDICTION),
        (place("us-east", "us"), Distance.OTHER),
    ],
)
def test_distance_is_region_then_jurisdiction(there: Locality, expected: Distance) -> None:
    assert distance(place("eu-west", "eu"), there) is expected
    assert distance(there, place("eu-west", "eu")) is expected


@pytest.mark.parametrize("name", ["a", "eu-west", "cluster-1.example", "0", "a" * 63])
def test_legal_names(name: str) -> None:
    assert check_name(name, "cluster id") == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "a b", "a" * 64, "a\n", "ü"])
def test_illegal_names_are_refused_by_what_they_are(name: str) -> None:
    with pytest.raises(ValueError, match=r"cluster id .* must be 1-63 characters"):
        check_name(name, "cluster id")


@pytest.mark.parametrize("code", ["eu", "us-gov", "a" * 32])
def test_legal_jurisdictions(code: str) -> None:
    assert check_jurisdiction(code) == code


@pytest.mark.parametrize("code", ["", "e", "EU", "a" * 33, "eu\n", "eu.west"])
def test_illegal_jurisdictions_are_refused(code: str) -> None:
    with pytest.raises(ValueError, match=r"jurisdiction .* must match"):
        check_jurisdiction(code)
