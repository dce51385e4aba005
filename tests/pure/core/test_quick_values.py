"""Structs in the place of dataclasses: made quickly, and taken by the same functions."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from msgspec import Struct

from elanus.core.quick_values import quick


@quick
class Point(Struct, frozen=True):
    x: int
    y: int = 5

    @property
    def sum(self) -> int:
        return self.x + self.y


def test_the_functions_of_dataclasses_take_it() -> None:
    moved = replace(Point(1), x=2)
    assert moved == Point(2, 5)
    assert (type(moved), moved.sum) == (Point, 7)
    assert [field.name for field in fields(Point)] == ["x", "y"]  # type: ignore[arg-type]


def test_it_does_not_change() -> None:
    with pytest.raises(AttributeError):
        Point(1).x = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        replace(Point(1), z=3)
