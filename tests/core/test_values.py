"""Values: equal by content, usable as keys, and without room for anything but their fields."""

import pytest

from services.core.values import value


@value
class _Point:
    x: int
    y: int = 0


def test_equal_content_is_one_key() -> None:
    assert _Point(1) == _Point(1, 0)
    assert len({_Point(1), _Point(1, 0), _Point(1, 2)}) == 2


def test_only_declared_fields_exist() -> None:
    point = _Point(1)
    with pytest.raises(AttributeError):
        point.z = 3  # type: ignore[attr-defined]  # exactly this is what must fail


def test_mypy_refuses_an_assignment() -> None:
    """An unused ignore is an error here, so this line fails the lint when values stop being frozen for mypy."""
    point = _Point(1)
    point.x = 2  # type: ignore[misc]  # refused for being frozen; at run time nothing stands in the way
    assert point == _Point(2)
