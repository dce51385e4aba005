"""Filters on geometries: every relation, distances, bounds, nulls, errors."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
import shapely

from elanus.core.errors import InvalidFilter
from elanus.core.geometry import wkb_of_texts
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.expr import GeometryColumn, compile_filter
from elanus.expr.geometry import RELATIONS
from elanus.expr.key_range import shape

SCHEMA = CollectionSchema(
    "places",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "place", DataType.GEOMETRY, nullable=True),
        FieldSchema(FieldID(102), "name", DataType.VARCHAR, max_length=9),
    ),
)
SQUARE = "POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0))"
SHAPES = [
    "POINT (1 1)",
    "POINT (4 2)",
    "POINT (9 9)",
    "LINESTRING (-1 2, 5 2)",
    "LINESTRING (1 1, 2 2)",
    SQUARE,
    "POLYGON ((2 2, 6 2, 6 6, 2 6, 2 2))",
    "POLYGON ((4 0, 8 0, 8 4, 4 4, 4 0))",
    "POLYGON ((-9 -9, 9 -9, 9 9, -9 9, -9 -9))",
    "POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0))",
    "MULTIPOINT ((1 1), (20 20))",
    "POINT EMPTY",
    "GEOMETRYCOLLECTION (POINT (1 1), LINESTRING (0 0, 1 1))",
    None,
]
WKB = pa.array([None if s is None else wkb_of_texts(pa.array([s]))[0].as_py() for s in SHAPES], pa.binary())
ROWS = len(SHAPES)
SOME = np.array([s is not None for s in SHAPES])


def found(text: str, column: pa.Array = WKB) -> list[np.ndarray]:
    """The rows that match, of a plain column and of one with bounds."""
    chosen = compile_filter(text, SCHEMA)
    again = compile_filter(chosen.explain(), SCHEMA)
    assert shape(again.predicate) == shape(chosen.predicate), chosen.explain()
    forms = (column, GeometryColumn(column), pa.chunked_array([column.slice(0, 5), column.slice(5)]))
    return [chosen.evaluate({"place": form}, len(column)) for form in forms]


@pytest.mark.parametrize("verb", RELATIONS)
@pytest.mark.parametrize("other", [s for s in SHAPES if s is not None])
def test_relations_are_those_of_the_library(verb: str, other: str) -> None:
    shapes = shapely.from_wkb(np.array(WKB.to_pylist(), dtype=object))
    expected = getattr(shapely, RELATIONS[verb])(shapes, shapely.from_wkt(other))
    for rows in found(f"{verb}(place, '{other}')"):
        assert np.array_equal(rows, expected)
    for rows in found(f"not {verb.upper()}(place, '{other}')"):
        assert np.array_equal(rows, ~expected & SOME), "a null matches neither a test nor its negation"


def test_validity() -> None:
    for rows in found("st_isvalid(place)"):
        assert np.array_equal(rows, SOME & (np.arange(ROWS) != SHAPES.index(SHAPES[9])))


def test_distances_are_meters_on_the_sphere() -> None:
    degree = np.pi * 6_371_000 / 180
    texts = [
        "POINT (0 0)",
        "POINT (0 1)",
        "POINT (1 0)",
        "POINT (0 2)",
        "LINESTRING (-0.1 1, 0.1 1)",
        "POINT EMPTY",
    ]
    column = wkb_of_texts(pa.array(texts))

    def within(meters: float, point: str = "POINT (0 0)", of: pa.Array = column) -> list[int]:
        plain, *others = found(f"st_dwithin(place, '{point}', {meters!r})", of)
        for other in others:
            assert np.array_equal(plain, other)
        return plain.nonzero()[0].tolist()

    assert within(0) == [0]
    assert within(degree * 0.999) == [0]
    assert within(degree * 1.001) == [0, 1, 2, 4]
    assert within(degree * 2.001) == [0, 1, 2, 3, 4]
    east_and_west = wkb_of_texts(
        pa.array(["POINT (179.9 0)", "POINT (-179.9 0)", "POINT (0 89)", "POINT (180 89)"])
    )
    assert within(degree * 0.25, "POINT (179.9 0)", east_and_west) == [0, 1]
    assert within(degree * 2.1, "POINT (0 89)", east_and_west) == [2, 3]


def test_bounds_decide_as_parsing_does() -> None:
    rng = np.random.default_rng(5)
    points = shapely.points(rng.uniform(-180, 180, 400), rng.uniform(-90, 90, 400))
    column = pa.array(shapely.to_wkb(points).tolist(), pa.binary())
    for _ in range(40):
        x, y, radius = rng.uniform(-180, 180), rng.uniform(-90, 90), 10 ** rng.uniform(4, 7.2)
        plain, bounded, _ = found(f"st_dwithin(place, 'POINT ({x} {y})', {radius})", column)
        assert np.array_equal(plain, bounded)


def test_rows_whose_bounds_rule_them_out_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    column = GeometryColumn(WKB)
    assert column.cached_bytes == 0
    chosen = compile_filter("st_within(place, 'POLYGON ((8 8, 10 8, 10 10, 8 10, 8 8))')", SCHEMA)
    chosen.evaluate({"place": column}, ROWS)
    assert column.cached_bytes == ROWS * 32
    parsed: list[int] = []
    from_wkb = shapely.from_wkb
    monkeypatch.setattr(shapely, "from_wkb", lambda w, **k: parsed.append(np.size(w)) or from_wkb(w, **k))
    assert chosen.evaluate({"place": column}, ROWS).nonzero()[0].tolist() == [2]
    assert max(parsed) < ROWS / 2


def test_geometries_join_other_conditions() -> None:
    columns = {"place": GeometryColumn(WKB), "id": pa.array(range(ROWS))}
    for text, rows in (
        (f"st_within(place, '{SQUARE}') and id > 3", [4, 5, 12]),
        (f"st_intersects(place, '{SQUARE}') and not st_isvalid(place)", [9]),
        ("place is null or st_equals(place, 'POINT(9 9)')", [2, 13]),
    ):
        assert compile_filter(text, SCHEMA).evaluate(columns, ROWS).nonzero()[0].tolist() == rows
    chosen = compile_filter("st_equals(place, {here})", SCHEMA, {"here": "POINT(9 9)"})
    assert chosen.evaluate(columns, ROWS).nonzero()[0].tolist() == [2]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("st_within(place, 'POLYGON((0 0')", "invalid geometry WKT 'POLYGON((0 0': ParseException"),
        ("st_within(place, 5)", "a geometry must be a text in WKT"),
        ("st_within(name, 'POINT(1 2)')", "only supported on geometry fields now, got: VarChar"),
        ("st_within(place)", "st_within takes 2 arguments, but got 1"),
        ("st_isvalid(place, 'POINT(1 2)')", "st_isvalid takes 1 arguments, but got 2"),
        ("st_dwithin(place, 'POINT(1 2)')", "st_dwithin takes 3 arguments, but got 2"),
        ("st_dwithin(place, 'POINT(1 2)', -1)", "must be a number from 0 on"),
        ("st_dwithin(place, 'POINT(1 2)', '5')", "must be a number from 0 on"),
        ("st_dwithin(place, 'LINESTRING(1 2, 3 4)', 5)", "measures the distance to a point"),
        ("place == 'POINT(1 2)'", "comparisons between Geometry and VarChar are not supported"),
        ("place == place", "comparisons between Geometry and Geometry are not supported"),
        ("place in ['POINT(1 2)']", "'POINT(1 2)"),
        ("st_within(place, 'POINT(1 2)') > 3", "function st_within"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidFilter) as caught:
        compile_filter(text, SCHEMA)
    assert why in str(caught.value)


def test_the_library_is_loaded_by_the_first_use_only() -> None:
    program = (
        "import json, sys\n"
        "import elanus.server.online, elanus.pipeline.import_columns, elanus.querynode.node\n"
        "before = 'shapely' in sys.modules\n"
        "from elanus.core.geometry import parse_wkt\n"
        "parse_wkt('POINT (1 2)')\n"
        "print(json.dumps([before, 'shapely' in sys.modules]))\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert json.loads(answer.stdout) == [False, True]
