"""Indexes on moments and geometries: filters use them, and find the rows that they find without."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
import shapely

from elanus.core import geometry
from elanus.core.ids import FieldID
from elanus.core.moments import Interval, format_moment, parse_moment
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.expr import GeometryColumn, compile_filter, indexed
from elanus.expr.geometry import RELATIONS
from elanus.index import ScalarIndex, build, load, resolve_index

SCHEMA = CollectionSchema(
    "events",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "t", DataType.TIMESTAMPTZ, nullable=True),
        FieldSchema(FieldID(102), "place", DataType.GEOMETRY, nullable=True),
    ),
)
ROWS = 2000
DAY = 86_400_000_000
FIRST, LAST = parse_moment("1999-01-01T00:00:00Z"), parse_moment("2005-01-01T00:00:00Z")


def index_of(name: str, column: pa.Array, directory: Path | None = None) -> ScalarIndex:
    """The index that AUTOINDEX selects, through a file if there is a directory for it."""
    data_type = SCHEMA.field(name).data_type
    spec = resolve_index({"index_type": "AUTOINDEX"}, data_type, 0)
    index = build(spec, column, 1)
    if directory is not None:
        index.save(directory / name)
        index = load(directory / name, resolve_index(spec.flattened(), data_type, 0))
    assert isinstance(index, ScalarIndex)
    return index


def shape_around(random: Random, x: float, y: float) -> object:
    """A geometry of any kind near a place; sometimes empty."""
    size = random.choice((0.001, 0.5, 3.0))
    match random.randrange(12):
        case 0:
            return shapely.box(x, y, x + size, y + size / 2)
        case 1:
            return shapely.LineString([(x, y), (x + size, y - size)])
        case 2:
            return shapely.MultiPoint([(x, y), (x - 2 * size, y + size)])
        case 3:
            return shapely.Point()
    return shapely.Point(x, y)


def moments() -> pa.Array:
    random = Random(3)
    values = [
        random.choice((random.randrange(FIRST, LAST), FIRST + DAY * random.randrange(9))) for _ in range(ROWS)
    ]
    return pa.array([None if n % 11 == 0 else value for n, value in enumerate(values)], pa.int64())


def places() -> pa.Array:
    random = Random(4)
    shapes = [shape_around(random, random.uniform(-179, 176), random.uniform(-85, 85)) for _ in range(ROWS)]
    values = shapely.to_wkb(np.array(shapes, dtype=object)).tolist()
    return pa.array([None if n % 13 == 0 else value for n, value in enumerate(values)], pa.binary())


COLUMNS = {"id": pa.array(range(ROWS)), "t": moments(), "place": places()}


def filter_on_moments(random: Random) -> str:
    moment = random.choice((random.randrange(FIRST, LAST), FIRST + DAY * random.randrange(40)))
    years, months, days = (random.choice((0, 0, most)) for most in (2, 5, 40))
    interval = f" {random.choice('+-')} INTERVAL 'P{years}Y{months}M{days}D'" if random.random() < 0.7 else ""
    sign = random.choice(("==", "!=", "<", "<=", ">", ">="))
    text = f"t{interval} {sign} ISO '{format_moment(moment)}'"
    if random.random() < 0.2:
        text = f"t in [ISO '{format_moment(moment)}', ISO '{format_moment(FIRST)}']"
    return f"not ({text})" if random.random() < 0.3 else text


def filter_on_places(random: Random) -> str:
    x, y = random.uniform(-175, 175), random.uniform(-80, 80)
    if random.random() < 0.4:
        text = f"st_dwithin(place, 'POINT ({x} {y})', {10 ** random.uniform(3, 7)})"
    else:
        size = 10 ** random.uniform(-1, 2)
        other = random.choice(
            (shapely.box(x, y, x + size, y + size), shapely.from_wkb(random.choice(known())))
        )
        text = f"{random.choice(sorted(RELATIONS))}(place, '{other.wkt}')"
    return f"not {text}" if random.random() < 0.2 else text


def known() -> list[bytes]:
    return [value for value in COLUMNS["place"].to_pylist()[:200] if value is not None]


@pytest.mark.parametrize("any_share", [False, True], ids=["where quicker", "always"])
def test_indexes_change_no_answer(any_share: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexed, "SCAN_COST_MIN", -1)
    if any_share:
        monkeypatch.setattr(indexed, "SPARSE_SHARE_MAX", 10.0)
        monkeypatch.setattr(ScalarIndex, "rows_share_max", 10.0)
    indexes = {(name, ()): index_of(name, COLUMNS[name], tmp_path) for name in ("t", "place")}
    random, used, matches = Random(5), 0, 0
    for number in range(150):
        texts = [filter_on_moments(random), filter_on_places(random)]
        text = f" {random.choice(('and', 'or'))} ".join(texts) if number % 3 == 2 else texts[number % 3]
        chosen = compile_filter(text, SCHEMA)
        scanned = chosen.evaluate(COLUMNS, ROWS)
        columns = COLUMNS | {"place": GeometryColumn(COLUMNS["place"])}
        assert np.array_equal(chosen.evaluate(columns, ROWS, indexes), scanned), text
        assert chosen.may_match({"t": (FIRST, LAST)}) or not scanned.any(), text
        used += chosen.explain_indexes(columns, ROWS, indexes).startswith("index")
        matches += int(scanned.sum())
    assert used > (100 if any_share else 12)
    assert matches > ROWS


@pytest.mark.parametrize("months", [1, -1, 2, 11, 12, -25, 48, 1200, 4801])
def test_the_lengths_of_an_interval_are_bounds_that_are_reached(months: int) -> None:
    begins = np.arange("1900-01", "2310-01", dtype="M8[D]").astype("M8[us]").view(np.int64)
    interval = Interval(months, 7)
    lengths = interval.after(begins) - begins
    assert interval.lengths == (lengths.min(), lengths.max())


def test_a_filter_on_moments_reads_no_column() -> None:
    column = pa.array([FIRST + n * DAY // 24 for n in range(600_000)])
    indexes = {("t", ()): index_of("t", column)}
    for text in (
        "t == ISO '1999-01-02T00:00:00Z'",
        "t < ISO '1999-01-09T00:00:00Z'",
        "t - INTERVAL 'P1D' < ISO '1999-01-09T00:00:00Z'",
    ):
        chosen = compile_filter(text, SCHEMA)
        explained = chosen.explain_indexes({"t": column}, len(column), indexes)
        assert explained.startswith("index t (AUTOINDEX): at most"), explained
        assert ", then " not in explained
    months = compile_filter("t + INTERVAL 'P1M' < ISO '1999-03-01T00:00:00Z'", SCHEMA)
    explained = months.explain_indexes({"t": column}, len(column), indexes)
    assert explained.startswith("index t (AUTOINDEX): at most 745 of 600,000 rows, then "), explained


def test_with_an_index_few_geometries_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    points = shapely.points(rng.uniform(-180, 180, 20_000), rng.uniform(-90, 90, 20_000))
    values = pa.array(shapely.to_wkb(points).tolist(), pa.binary())
    indexes, column = {("place", ()): index_of("place", values)}, GeometryColumn(values)
    parsed: list[int] = []
    parse = geometry.geometries

    def counted(column: pa.Array) -> geometry.Geometries:
        parsed.append(len(column))
        return parse(column)

    monkeypatch.setattr(geometry, "geometries", counted)
    monkeypatch.setattr("elanus.expr.geometry.geometries", counted)
    for text in (
        "st_dwithin(place, 'POINT (5 5)', 300000)",
        "st_within(place, 'POLYGON ((0 0, 9 0, 9 9, 0 0))')",
    ):
        chosen = compile_filter(text, SCHEMA)
        found = chosen.evaluate({"place": column}, 20_000, indexes)
        assert found.any()
        assert found.sum() <= sum(parsed) < 500
        assert not column.has_boxes
        parsed.clear()
    chosen.evaluate({"place": column}, 20_000)
    assert column.has_boxes
