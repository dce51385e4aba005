"""Geometries: Well-Known Text in and out, Well-Known Binary inside.

The geometry library is imported by the first use: a server without geometries never loads it.
Everything works on whole columns.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.errors import InvalidParameter
from elanus.core.geometry_form import CURVED, fault_of_binary, fault_of_text

Geometries = npt.NDArray[np.object_]
"""Parsed geometries, None for nulls: shape (n,)."""
Boxes = npt.NDArray[np.float64]
"""The bounds of geometries: x and y of the lower corner, then of the upper one; NaN if empty. (n, 4)."""

_EARTH_RADIUS_M = 6_371_000.0
_SHOWN_CHARS = 80
_PARSED_TOGETHER = 1 << 16
"""Rows whose geometries are in memory at the same time when only their bounds are wanted."""


class InvalidGeometry(ValueError):
    """A value of a column that is no geometry. ``row``: its place in the column."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row = row


def library() -> ModuleType:
    """Return the geometry library, which takes 50 ms to import."""
    return importlib.import_module("shapely")


def wkb_of_texts(texts: pa.Array) -> pa.Array:
    """Return a ``binary`` column of the geometries in a column of texts without nulls.

    Raises `InvalidGeometry`.
    """
    values = np.array(texts.to_pylist(), dtype=object)
    try:
        return _written(_of_texts(values))
    except InvalidGeometry as error:
        shown = _shown(values[error.row])
        raise InvalidGeometry(error.row, f"invalid geometry WKT '{shown}': {error}") from None


def wkb_of_binaries(binaries: pa.Array) -> pa.Array:
    """Return a ``binary`` column of the geometries in a column of WKB without nulls.

    Raises `InvalidGeometry`.
    """
    values = binaries.to_pylist()
    for row, value in enumerate(values):
        if why := fault_of_binary(value):
            raise InvalidGeometry(row, f"invalid geometry WKB: {why}")
    parsed = library().from_wkb(np.array(values, dtype=object), on_invalid="ignore")
    row_of_none = _first(library().is_missing(parsed))
    if row_of_none is not None:
        raise InvalidGeometry(row_of_none, "invalid geometry WKB: the bytes are no geometry")
    try:
        _check_finite(parsed)
    except InvalidGeometry as error:
        raise InvalidGeometry(error.row, f"invalid geometry WKB: {error}") from None
    return _written(parsed)


def parse_wkt(text: str) -> Any:
    """Return the geometry of a text. Raises `InvalidParameter`."""
    try:
        return _of_texts(np.array([text], dtype=object))[0]
    except InvalidGeometry as error:
        raise InvalidParameter(f"invalid geometry WKT '{_shown(text)}': {error}") from None


def texts_of(column: pa.Array) -> pa.Array:
    """Return a ``binary`` column of geometries as texts, nulls as nulls."""
    texts = library().to_wkt(geometries(column), rounding_precision=-1, trim=True)
    return pa.array(texts.tolist(), pa.string())


def geometries(column: pa.Array) -> Geometries:
    """Return the geometries of a ``binary`` column."""
    parsed: Geometries = library().from_wkb(np.array(column.to_pylist(), dtype=object))
    return parsed


def boxes_of(column: pa.Array) -> Boxes:
    """Return the bounds of the geometries of a ``binary`` column; NaN for nulls."""
    boxes = np.empty((len(column), 4), np.float64)
    for first in range(0, len(column), _PARSED_TOGETHER):
        part = column.slice(first, _PARSED_TOGETHER)
        boxes[first : first + len(part)] = library().bounds(geometries(part))
    return boxes


def is_point(boxes: Boxes) -> npt.NDArray[np.bool_]:
    """Return which bounds are those of a point, (n,)."""
    points: npt.NDArray[np.bool_] = (boxes[:, 0] == boxes[:, 2]) & (boxes[:, 1] == boxes[:, 3])
    return points


def apart(boxes: Boxes, other: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return which boxes have no point in common with another one, (n,). Comparisons with NaN are false."""
    low_x, low_y, high_x, high_y = other
    aside = (boxes[:, 0] > high_x) | (boxes[:, 2] < low_x)
    distant: npt.NDArray[np.bool_] = aside | (boxes[:, 1] > high_y) | (boxes[:, 3] < low_y)
    return distant


def meters_between(shapes: Geometries, point: Any) -> npt.NDArray[np.float64]:
    """Return the distances of geometries to a point on the sphere, in meters; NaN for empty ones. shape (n,)

    Coordinates are degrees of longitude and latitude. The geometries are projected around the point: the
    distances of their corners are exact, edges count as straight lines of that map (azimuthal equidistant
    projection, Snyder, 1987).
    """
    shapely = library()
    east, north = np.radians([point.x, point.y])

    def projected(degrees: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        longitude, latitude = np.radians(degrees).T
        sines = np.sin((latitude - north) / 2) ** 2
        sines += np.cos(latitude) * np.cos(north) * np.sin((longitude - east) / 2) ** 2
        meters = 2 * _EARTH_RADIUS_M * np.arcsin(np.sqrt(np.clip(sines, 0, 1)))
        bearing = np.arctan2(
            np.cos(latitude) * np.sin(longitude - east),
            np.cos(north) * np.sin(latitude) - np.sin(north) * np.cos(latitude) * np.cos(longitude - east),
        )
        return np.stack((meters * np.sin(bearing), meters * np.cos(bearing)), axis=1)

    distances: npt.NDArray[np.float64] = shapely.distance(
        shapely.transform(shapely.force_2d(shapes), projected), shapely.Point(0, 0)
    )
    return distances


def degrees_around(point: Any, meters: float) -> npt.NDArray[np.float64] | None:
    """Return a box, (4,), that holds every point this close to ``point``; None if it is not one box."""
    angle = meters / _EARTH_RADIUS_M
    north = np.radians(point.y)
    if angle + abs(north) >= np.pi / 2:
        return None
    half_width = np.degrees(np.arcsin(min(1.0, np.sin(angle) / np.cos(north)))) + 1e-9
    half_height = np.degrees(angle) + 1e-9
    if abs(point.x) + half_width >= 180:
        return None
    return np.array(
        [point.x - half_width, point.y - half_height, point.x + half_width, point.y + half_height]
    )


def _of_texts(texts: npt.NDArray[np.object_]) -> Geometries:
    """Raises `InvalidGeometry`."""
    for row, text in enumerate(texts):
        if why := fault_of_text(text):
            raise InvalidGeometry(row, why)
    shapely = library()
    try:
        parsed: Geometries = shapely.from_wkt(texts, on_invalid="ignore")
    except NotImplementedError:
        raise InvalidGeometry(_first_curve(texts), CURVED) from None
    row_of_none = _first(shapely.is_missing(parsed))
    if row_of_none is not None:
        raise InvalidGeometry(row_of_none, _why(texts[row_of_none]))
    collections = shapely.get_type_id(parsed) == shapely.GeometryType.GEOMETRYCOLLECTION
    for row in np.flatnonzero(collections).tolist():
        if why := fault_of_binary(shapely.to_wkb(parsed[row])):
            raise InvalidGeometry(row, why)
    _check_finite(parsed)
    return parsed


def _first_curve(texts: npt.NDArray[np.object_]) -> int:
    """Return the row of the first text that is a curve. There is one."""
    for row, text in enumerate(texts):
        try:
            library().from_wkt(text, on_invalid="ignore")
        except NotImplementedError:
            return row
    raise AssertionError("no curve among the texts")


def _check_finite(parsed: Geometries) -> None:
    """Raises `InvalidGeometry`. Comparisons with other geometries fail for such coordinates."""
    coordinates, rows = library().get_coordinates(parsed, return_index=True)
    first = _first(~np.isfinite(coordinates).all(axis=1))
    if first is not None:
        x, y = coordinates[first]
        raise InvalidGeometry(int(rows[first]), f"the coordinates {x:g} {y:g} are not finite")


def _written(parsed: Geometries) -> pa.Array:
    return pa.array(library().to_wkb(parsed).tolist(), pa.binary())


def _first(found: npt.NDArray[np.bool_]) -> int | None:
    places = np.flatnonzero(found)
    return int(places[0]) if len(places) else None


def _why(text: str) -> str:
    shapely = library()
    try:
        shapely.from_wkt(text)
    except shapely.errors.GEOSException as error:
        return str(error)
    return "it is empty"


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
