"""Checks of scalar indexes: every kind on the fields that it indexes, and JSON paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from client_base import FLAT, VECTORS, VERSION, check, collection, filled, keys
from pymilvus import Collection, DataType, FieldSchema, MilvusException, utility

FIELDS = (
    FieldSchema("n", DataType.INT64),
    FieldSchema("f", DataType.DOUBLE),
    FieldSchema("b", DataType.BOOL),
    FieldSchema("s", DataType.VARCHAR, max_length=20),
    FieldSchema("j", DataType.JSON),
)
COLUMNS: tuple[list[Any], ...] = (
    [row % 30 for row in range(300)],
    [row / 4 for row in range(300)],
    [row % 2 == 0 for row in range(300)],
    [f"word {row % 30}" for row in range(300)],
    [{"a": row % 30, "b": {"c": str(row)}} for row in range(300)],
)
KINDS: tuple[tuple[str, tuple[str, ...], dict[str, Any]], ...] = (
    ("INVERTED", ("n", "f", "b", "s"), {}),
    ("STL_SORT", ("n", "f"), {}),
    ("BITMAP", ("n", "b", "s"), {}),
    ("Trie", ("s",), {}),
    ("AUTOINDEX", ("n", "f", "b", "s"), {}),
    ("NGRAM", ("s",), {"params": {"min_gram": 2, "max_gram": 3}}),
)
FILTERS = {
    "n": ("n == 7", [7 + 30 * n for n in range(10)]),
    "f": ("f < 1.0", [0, 1, 2, 3]),
    "b": ("b == true and key < 6", [0, 2, 4]),
    "s": ('s like "%d 29"', [29 + 30 * n for n in range(10)]),
}


def index_of_scalars(kind: str, names: tuple[str, ...], params: dict[str, Any]) -> Callable[[], None]:
    def find() -> None:
        with collection(*FIELDS) as made:
            filled(made, *COLUMNS)
            for name in names:
                made.create_index(name, {"index_type": kind, **params}, index_name=f"by_{name}")
                utility.wait_for_index_building_complete(made.name, index_name=f"by_{name}")
                described = made.index(index_name=f"by_{name}")
                assert (described.field_name, described.params["index_type"]) == (name, kind)
                text, found = FILTERS[name]
                assert keys(made.query(text, output_fields=["key"])) == found
                made.drop_index(index_name=f"by_{name}")
                assert not made.has_index(index_name=f"by_{name}")

    return find


for kind, names, params in KINDS:
    title = f"{kind} on scalar fields, of a loaded collection"
    check("Indexes", title, needs=kind != "NGRAM" or VERSION >= (2, 6))(index_of_scalars(kind, names, params))


@check("Indexes", "INVERTED on JSON paths", needs=VERSION >= (2, 6))
def _() -> None:
    with collection(*FIELDS) as made:
        made.insert([list(range(300)), *COLUMNS, VECTORS])
        made.create_index("v", FLAT, sync=False)
        for name, path, cast in (("a", "j['a']", "double"), ("c", 'j["b"]["c"]', "varchar")):
            params = {"json_path": path, "json_cast_type": cast}
            made.create_index("j", {"index_type": "INVERTED", "params": params}, index_name=name)
        made.load()
        assert keys(made.query('j["a"] == 7', output_fields=["key"])) == FILTERS["n"][1]
        assert keys(made.query('j["b"]["c"] == "8"', output_fields=["key"])) == [8]
        assert {"a", "c"} <= {index.index_name for index in made.indexes}


@check("Indexes", "STL_SORT and AUTOINDEX on TIMESTAMPTZ", needs=hasattr(DataType, "TIMESTAMPTZ"))
def _() -> None:
    with collection(FieldSchema("t", DataType.TIMESTAMPTZ)) as made:
        days = [f"2025-01-{row % 30 + 1:02d}T00:00:00Z" for row in range(300)]
        _filled_by_rows(made, [{"t": day} for day in days])
        for kind in ("STL_SORT", "AUTOINDEX"):
            _created(made, "t", kind)
            found = keys(made.query("t == ISO '2025-01-08T00:00:00Z'", output_fields=["key"]))
            assert found == FILTERS["n"][1]
            found = keys(
                made.query("t + INTERVAL 'P1D' == ISO '2025-01-09T00:00:00Z'", output_fields=["key"])
            )
            assert found == FILTERS["n"][1]
            made.drop_index(index_name="by_t")
        refusal = "1100: INVERTED are not supported on Timestamptz field"
        assert _refusal(made, "t", "INVERTED").startswith(refusal)


@check("Indexes", "RTREE and AUTOINDEX on GEOMETRY", needs=hasattr(DataType, "GEOMETRY"))
def _() -> None:
    with collection(FieldSchema("place", DataType.GEOMETRY), FieldSchema("n", DataType.INT64)) as made:
        _filled_by_rows(made, [{"place": f"POINT ({row % 30} 1)", "n": row} for row in range(300)])
        for kind in ("RTREE", "AUTOINDEX"):
            _created(made, "place", kind)
            square = "POLYGON ((6.5 0, 7.5 0, 7.5 2, 6.5 2, 6.5 0))"
            for condition in (f"st_within(place, '{square}')", "st_dwithin(place, 'POINT (7.1 1)', 20000)"):
                assert keys(made.query(condition, output_fields=["key"])) == FILTERS["n"][1]
            made.drop_index(index_name="by_place")
        refusal = "1100: RTREE index can only be built on geometry field, got Int64"
        assert _refusal(made, "n", "RTREE").startswith(refusal)


def _filled_by_rows(made: Collection, rows: list[dict[str, Any]]) -> None:
    made.insert([{"key": number, "v": VECTORS[number], **row} for number, row in enumerate(rows)])
    made.create_index("v", FLAT, sync=False)
    made.load()


def _created(made: Collection, name: str, kind: str) -> None:
    made.create_index(name, {"index_type": kind}, index_name=f"by_{name}")
    utility.wait_for_index_building_complete(made.name, index_name=f"by_{name}")
    assert made.index(index_name=f"by_{name}").params["index_type"] == kind


def _refusal(made: Collection, name: str, kind: str) -> str:
    answer = "created"
    try:
        made.create_index(name, {"index_type": kind})
    except MilvusException as error:
        answer = f"{error.code}: {error.message}"
    return answer


@check("Indexes", "`alter_index`: `mmap.enabled`, of a released collection", needs=VERSION >= (2, 4))
def _() -> None:
    with collection(*FIELDS) as made:
        filled(made, *COLUMNS)
        made.create_index("n", {"index_type": "INVERTED"}, index_name="by_n")
        answer = "altered"
        try:
            made.alter_index("by_n", {"mmap.enabled": True})
        except MilvusException as error:
            answer = str(error)
        assert "can't alter index on loaded collection" in answer
        made.release()
        made.alter_index("by_n", {"mmap.enabled": False})
        assert str(made.index(index_name="by_n").params["mmap.enabled"]).lower() == "false"
