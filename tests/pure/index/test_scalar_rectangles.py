"""The tree of rectangles: the rows it finds, how many of its rectangles it looks at, and its file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import shapely

from elanus.core.geometry import boxes_of
from elanus.core.lookup import Near, OneOf, RowNumbers
from elanus.core.schema import DataType
from elanus.index import ScalarIndex, build, load, resolve_index
from elanus.index.scalar import rectangles
from elanus.index.scalar.rectangles import FANOUT

SPEC = resolve_index({"index_type": "RTREE"}, DataType.GEOMETRY, 0)


def made(shapes: object) -> tuple[pa.Array, ScalarIndex]:
    column = pa.array(shapely.to_wkb(np.array(shapes, dtype=object)).tolist(), pa.binary())
    index = build(SPEC, column, 1)
    assert isinstance(index, ScalarIndex)
    return column, index


def random_shapes(rows: int) -> list[object]:
    """Points, boxes, empty geometries and nulls, some of them at the same place."""
    rng = np.random.default_rng(rows)
    shapes: list[object] = []
    for x, y, size in rng.integers(0, 40, (rows, 3)).tolist():
        kinds = [shapely.Point(x, y), shapely.box(x, y, x + size / 4, y + 1), shapely.Point(), None]
        shapes.append(kinds[int(rng.choice(4, p=[0.6, 0.3, 0.05, 0.05]))])
    return shapes


@pytest.mark.parametrize("rows", [0, 1, FANOUT, FANOUT + 1, FANOUT**2, FANOUT**2 + 1, 1500])
def test_the_rows_are_those_whose_bounds_touch(rows: int) -> None:
    column, index = made(random_shapes(rows))
    boxes = boxes_of(column)
    is_valid = np.array([value is not None for value in column.to_pylist()], np.bool_)
    is_point = (boxes[:, 0] == boxes[:, 2]) & (boxes[:, 1] == boxes[:, 3])
    rng = np.random.default_rng(1)
    for low_x, low_y, width, height in rng.integers(-3, 44, (30, 4)).tolist():
        box = np.array([low_x, low_y, low_x + width / 3, low_y + height / 3])
        away = (boxes[:, :2] > box[2:]).any(axis=1) | (boxes[:, 2:] < box[:2]).any(axis=1)
        for of_points in (False, True):
            found, estimate = index.find(Near(box, of_points)), index.estimate(Near(box, of_points))
            assert isinstance(found, RowNumbers)
            assert estimate is not None
            assert len(found.rows) <= estimate <= rows
            expected = np.flatnonzero(is_valid & ~(away & is_point if of_points else away))
            assert sorted(found.rows.tolist()) == expected.tolist()


def test_only_geometries_near_the_box_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    _, index = made(shapely.points(rng.uniform(-180, 180, 100_000), rng.uniform(-90, 90, 100_000)))
    looked_at: list[int] = []
    apart = rectangles.apart
    monkeypatch.setattr(
        rectangles, "apart", lambda boxes, box: looked_at.append(len(boxes)) or apart(boxes, box)
    )
    near = Near(np.array([10.0, 10.0, 12.0, 11.0]))
    estimate = index.estimate(near)
    assert estimate is not None
    assert sum(looked_at) < 500
    assert estimate < 500
    index.find(near)
    assert sum(looked_at) < 2000


def test_other_lookups_are_declined() -> None:
    _, index = made([shapely.Point(1, 1)])
    assert index.find(OneOf(pa.array([1]))) is None
    assert index.estimate(OneOf(pa.array([1]))) is None


@pytest.mark.parametrize("mapped", ["true", "false"])
def test_a_file_brings_back_the_tree(mapped: str, tmp_path: Path) -> None:
    _, index = made(random_shapes(400))
    index.save(tmp_path / "index")
    spec = resolve_index({"index_type": "RTREE", "mmap.enabled": mapped}, DataType.GEOMETRY, 0)
    again = load(tmp_path / "index", spec)
    assert isinstance(again, ScalarIndex)
    assert again.memory_bytes == index.memory_bytes
    near = Near(np.array([3.0, 3.0, 9.0, 9.0]))
    found, same = again.find(near), index.find(near)
    assert isinstance(found, RowNumbers)
    assert isinstance(same, RowNumbers)
    assert np.array_equal(found.rows, same.rows)


def test_coordinates_beyond_all_numbers_are_found() -> None:
    huge = 1.7e308
    shapes = [shapely.Point(n, n) for n in range(40)] + [shapely.box(-huge, -huge, huge, huge)]
    _, index = made(shapes)
    found = index.find(Near(np.array([5.0, 5.0, 5.0, 5.0])))
    assert isinstance(found, RowNumbers)
    assert sorted(found.rows.tolist()) == [5, 40]
