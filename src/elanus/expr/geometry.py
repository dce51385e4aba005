"""Geometric conditions: ``st_within(place, 'POLYGON((..))')``, ``st_dwithin(place, 'POINT(1 2)', 500)``.

A condition reads the geometries of few rows. The bounds of all rows are kept with a column that many filters
read (`elanus.expr.geometry_column`), and only rows whose bounds leave it open are parsed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.errors import InvalidParameter
from elanus.core.geometry import (
    Boxes,
    apart,
    degrees_around,
    geometries,
    is_point,
    library,
    meters_between,
    parse_wkt,
)
from elanus.core.lookup import Near
from elanus.core.schema import DataType
from elanus.core.types import type_name
from elanus.expr import syntax
from elanus.expr.operands import OperandBinder, Value
from elanus.expr.source import Source
from elanus.expr.tree import Column, ColumnTest, Predicate

Mask = npt.NDArray[np.bool_]

RELATIONS: Mapping[str, str] = {
    "st_equals": "equals",
    "st_touches": "touches",
    "st_overlaps": "overlaps",
    "st_crosses": "crosses",
    "st_contains": "contains",
    "st_intersects": "intersects",
    "st_within": "within",
}
"""The conditions on two geometries, and the names of the library's functions."""
DISTANCE, VALID = "st_dwithin", "st_isvalid"
FUNCTIONS = frozenset({*RELATIONS, DISTANCE, VALID})
_WORDS = {VALID: (1, "place"), DISTANCE: (3, "place, 'POINT(1 2)', 500")}


def bind_geometry(source: Source, operands: OperandBinder, node: syntax.Call) -> Predicate:
    """Bind a call of one of `FUNCTIONS`. Raises `InvalidFilter`."""
    verb = node.function.lower()
    count, example = _WORDS.get(verb, (2, "place, 'POINT(1 2)'"))
    if len(node.arguments) != count:
        what = f"{node.function} takes {count} arguments, but got {len(node.arguments)}"
        raise source.error(what, node.start, f"write {verb}({example})")
    bound = [operands.bind(argument) for argument in node.arguments]
    column = bound[0]
    if not isinstance(column, Column) or column.data_type is not DataType.GEOMETRY:
        name = type_name(column.data_type)
        what = f"{verb} operation are only supported on geometry fields now, got: {name}"
        raise source.error(what, node.arguments[0].start, "the first argument is a geometry field")
    if verb == VALID:
        return ColumnTest(column, GeometryTest(verb, b""), negated=False)
    shape = _shape(source, node.arguments[1], bound[1])
    if verb != DISTANCE:
        return ColumnTest(column, GeometryTest(verb, library().to_wkb(shape)), negated=False)
    if shape.geom_type != "Point" or shape.is_empty:
        what = f"{verb} measures the distance to a point, but got: {source.of(node.arguments[1])}"
        raise source.error(what, node.arguments[1].start, f"write {verb}({example})")
    distance = getattr(bound[2], "value", None)
    if isinstance(distance, bool) or not isinstance(distance, int | float) or not 0 <= distance < np.inf:
        what = f"the distance of {verb} must be a number from 0 on, but got: {source.of(node.arguments[2])}"
        raise source.error(what, node.arguments[2].start, "distances are in meters")
    return ColumnTest(column, GeometryTest(verb, library().to_wkb(shape), float(distance)), negated=False)


def _shape(source: Source, node: syntax.Node, bound: Any) -> Any:
    text = bound.value if isinstance(bound, Value) else None
    if not isinstance(text, str):
        what = f"a geometry must be a text in WKT, but got: {source.of(node)}"
        raise source.error(what, node.start, "write it in quotes: 'POINT(1 2)'")
    try:
        return parse_wkt(text)
    except InvalidParameter as error:
        raise source.error(error.message, node.start, "write it like 'POINT(1 2)'") from None


@dataclass(frozen=True, slots=True)
class GeometryTest:
    """``verb``: one of `FUNCTIONS`. ``wkb``: the other geometry, if any. ``meters``: for distances."""

    verb: str
    wkb: bytes
    meters: float = 0.0

    cost = 2000

    def matches(self, column: pa.Array, boxes: Boxes | None = None) -> pa.Array:
        """``boxes``: the bounds of the column's geometries, if they are known."""
        found = np.zeros(len(column), dtype=np.bool_)
        missing = column.is_null().to_numpy(zero_copy_only=False)
        open_rows = np.flatnonzero(~missing if boxes is None else ~missing & self._possible(boxes))
        if len(open_rows):
            shapes = geometries(column.take(pa.array(open_rows)))
            found[open_rows] = self._holds(shapes)
        return pa.array(found, mask=missing)

    def text(self, operand: str) -> str:
        if self.verb == VALID:
            return f"{self.verb}({operand})"
        wkt = library().to_wkt(self._shape, rounding_precision=-1, trim=True)
        distance = f", {self.meters!r}" if self.verb == DISTANCE else ""
        return f"{self.verb}({operand}, {json.dumps(wkt)}{distance})"

    @property
    def _shape(self) -> Any:
        return library().from_wkb(self.wkb)

    def _holds(self, shapes: npt.NDArray[np.object_]) -> Mask:
        if self.verb == VALID:
            valid: Mask = library().is_valid(shapes)
            return valid
        if self.verb == DISTANCE:
            with np.errstate(invalid="ignore"):
                near: Mask = meters_between(shapes, self._shape) <= self.meters
            return near
        relation: Callable[..., Mask] = getattr(library(), RELATIONS[self.verb])
        related: Mask = relation(shapes, self._shape)
        return related

    def _possible(self, boxes: Boxes) -> Mask:
        """Return the rows that may match, as far as their bounds show; those of empty geometries may."""
        near = self._near()
        if near is None:
            return np.ones(len(boxes), dtype=np.bool_)
        distant = apart(boxes, near.box)
        return np.logical_not(is_point(boxes) & distant if near.of_points else distant)

    def lookup(self, *, negated: bool) -> Near | None:
        return None if negated else self._near()

    def _near(self) -> Near | None:
        """Return a lookup that every matching row passes; None if bounds say nothing."""
        if self.verb == VALID:
            return None
        if self.verb != DISTANCE:
            box = library().bounds(self._shape)
            return None if np.isnan(box).any() else Near(box)
        around = degrees_around(self._shape, self.meters)
        # Edges of other shapes may come closer than their corners.
        return None if around is None else Near(around, of_points=True)
