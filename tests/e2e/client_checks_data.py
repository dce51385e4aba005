"""Checks of `client_program`: types, indexes, filters, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymilvus
from client_base import DIM, FLAT, L2, VECTORS, VERSION, check, collection, filled, keys, program
from pymilvus import Collection, DataType, FieldSchema, MilvusException

TYPES: Sequence[tuple[str, Sequence[Any], dict[str, Any]]] = (
    ("BOOL", [True, False, True], {}),
    ("INT8", [-128, 0, 127], {}),
    ("INT16", [-(2**15), 0, 2**15 - 1], {}),
    ("INT32", [-(2**31), 0, 2**31 - 1], {}),
    ("INT64", [-(2**63), 0, 2**63 - 1], {}),
    ("FLOAT", [-1.5, 0.0, 2.0**100], {}),
    ("DOUBLE", [-1.0e300, 0.1, 3.0], {}),
    ("VARCHAR", ["", "é 漢字", "x" * 50], {"max_length": 50}),
    ("JSON", [{"a": [1, {"b": None}]}, {"text": "é"}, {"n": 1.5, "yes": True}], {}),
)
"""A type, values that must come back as they are, and the field's options."""

INDEXES: Sequence[tuple[str, str, dict[str, Any], dict[str, Any]]] = (
    ("FLAT", "L2", {}, {}),
    ("FLAT", "IP", {}, {}),
    ("FLAT", "COSINE", {}, {}),
    ("IVF_FLAT", "L2", {"nlist": 16}, {"nprobe": 16}),
    ("IVF_SQ8", "L2", {"nlist": 16}, {"nprobe": 16}),
    ("IVF_PQ", "L2", {"nlist": 16, "m": 4, "nbits": 8, "refine": True}, {"nprobe": 16}),
    ("IVF_RABITQ", "COSINE", {"nlist": 16, "refine": True}, {"nprobe": 16, "rbq_query_bits": 6}),
    ("IVF_RABITQ_FASTSCAN", "L2", {"nlist": 16, "refine": True}, {"nprobe": 16, "refine_k": 2}),
    ("SCANN", "COSINE", {"nlist": 16, "with_raw_data": True}, {"nprobe": 16, "reorder_k": 100}),
    ("DISKANN", "L2", {}, {"search_list": 50}),
    ("HNSW_SQ", "COSINE", {"sq_type": "SQ6", "refine": True, "refine_type": "SQ8"}, {"refine_k": 4}),
    ("HNSW_PQ", "L2", {"m": 4, "nbits": 8, "refine": True}, {"ef": 64}),
    ("HNSW_PRQ", "IP", {"m": 4, "nrq": 2, "nbits": 4, "refine": True}, {"ef": 64}),
    ("HNSW", "L2", {"M": 8, "efConstruction": 64}, {"ef": 64}),
    ("HNSW", "IP", {"M": 8, "efConstruction": 64}, {"ef": 64}),
    ("HNSW", "COSINE", {"M": 8, "efConstruction": 64}, {"ef": 64}),
    ("AUTOINDEX", "COSINE", {}, {}),
    ("BIN_FLAT", "HAMMING", {}, {}),
    ("BIN_FLAT", "JACCARD", {}, {}),
    ("BIN_IVF_FLAT", "HAMMING", {"nlist": 16}, {"nprobe": 16}),
    ("BIN_FLAT", "SUBSTRUCTURE", {}, {}),
    ("BIN_FLAT", "SUPERSTRUCTURE", {}, {}),
)
"""An index type, a metric, the parameters to build with and to search with."""

FILTERS: Sequence[tuple[str, Callable[[int], bool]]] = (
    ("n == -3", lambda row: row == 7),
    ("n != 0 and key < 12", lambda row: row != 10 and row < 12),
    ("-2 <= n < 4", lambda row: 8 <= row < 14),
    ("n in [1, 2, 99]", lambda row: row in (11, 12)),
    ("n not in [1, 2]", lambda row: row not in (11, 12)),
    ("not (b == true)", lambda row: row % 2 == 1),
    ("b == true or n > 7", lambda row: row % 2 == 0 or row > 17),
    ("n * 2 + 1 == 5", lambda row: row == 12),
    ("key % 4 == 1", lambda row: row % 4 == 1),
    ("f > 4.5", lambda row: row / 4 > 4.5),
    ('s like "s3%"', lambda row: row % 7 == 3),
    ('s >= "s6"', lambda row: row % 7 == 6),
    ('tone == "dark"', lambda row: row % 3 == 0),
    ('j["a"]["b"] >= 17', lambda row: row >= 17),
    ('j["list"][1] == 5', lambda row: row == 4),
    ("(key & 3) == 1", lambda row: row % 4 == 1),
    ("key >> 2 == 1 or ~key == -1", lambda row: row in (0, 4, 5, 6, 7)),
    ('s =~ "^s[36]/"', lambda row: row % 7 in (3, 6)),
    (r's !~ r"^s\d" or j["a"]["c"] !~ "x" and key == 3', lambda row: row == 3),
    ('json_contains_any(j["list"], [5, "x"]) && key < 5', lambda row: row == 4),
)
"""A filter and which of twenty rows it matches."""


# types


def scalar_type(name: str, values: Sequence[Any], options: dict[str, Any]) -> Callable[[], None]:
    def round_trip() -> None:
        with collection(FieldSchema("x", getattr(DataType, name), **options)) as made:
            filled(made, list(values), rows=len(values))
            rows = made.query("key >= 0", output_fields=["x"])
            assert [row["x"] for row in rows] == list(values), rows

    return round_trip


for name, values, options in TYPES:
    check("Types", name)(scalar_type(name, values, options))


@check("Types", "FLOAT_VECTOR")
def _() -> None:
    with collection() as made:
        filled(made)
        row = made.query("key == 9", output_fields=["v"])[0]
        assert np.array_equal(np.asarray(row["v"], np.float32), VECTORS[9])


@check("Types", "BINARY_VECTOR")
def _() -> None:
    with collection(vector=FieldSchema("v", DataType.BINARY_VECTOR, dim=16)) as made:
        made.insert([[1, 2], [b"ab", b"cd"]])
        made.create_index("v", {"index_type": "BIN_FLAT", "metric_type": "HAMMING", "params": {}}, sync=False)
        made.load()
        assert made.query("key == 2", output_fields=["v"])[0]["v"] == [b"cd"]


@check("Types", "VARCHAR primary key")
def _() -> None:
    key = FieldSchema("key", DataType.VARCHAR, max_length=20, is_primary=True)
    with collection(key=key) as made:
        made.insert([["a", "b"], VECTORS[:2]])
        made.create_index("v", FLAT, sync=False)
        made.load()
        assert made.search(VECTORS[1:2], "v", L2, 1)[0].ids == ["b"]
        made.delete('key in ["a"]')
        assert keys(made.query('key != "c"')) == ["b"]


@check("Types", "automatic ids")
def _() -> None:
    with collection(key=FieldSchema("key", DataType.INT64, is_primary=True, auto_id=True)) as made:
        given = list(made.insert([VECTORS[:5]]).primary_keys)
        made.create_index("v", FLAT, sync=False)
        made.load()
        assert keys(made.query("key > 0")) == sorted(given)
        assert len(set(given)) == 5


@check("Types", "automatic ids, and keys of one's own: `allow_insert_auto_id`", needs=VERSION >= (2, 6))
def _() -> None:
    with collection(key=FieldSchema("key", DataType.INT64, is_primary=True, auto_id=True)) as made:
        row = {"key": 7, "v": VECTORS[0]}
        said = ""
        try:
            made.insert([row])
        except MilvusException as error:
            said = str(error)
        assert "allow_insert_auto_id is false" in said
        made.set_properties({"allow_insert_auto_id": "true"})
        assert list(made.insert([row]).primary_keys) == [7]
        (fresh,) = made.insert([{"v": VECTORS[1]}]).primary_keys
        assert list(made.upsert([row]).primary_keys) == [7]
        made.create_index("v", FLAT, sync=False)
        made.load()
        assert keys(made.query("key > 0")) == [7, fresh]


@check("Types", "dynamic fields")
def _() -> None:
    with collection(enable_dynamic_field=True) as made:
        made.insert([{"key": n, "v": VECTORS[n], "tone": f"t{n}", "deep": {"n": n}} for n in range(5)])
        made.create_index("v", FLAT, sync=False)
        made.load()
        assert list(made.query('tone == "t3"', output_fields=["tone"])) == [{"key": 3, "tone": "t3"}]
        assert keys(made.query('deep["n"] > 2')) == [3, 4]


@check("Types", "nullable and default values", needs=VERSION >= (2, 5))
def _() -> None:
    fields = (
        FieldSchema("n", DataType.INT32, nullable=True),
        FieldSchema("s", DataType.VARCHAR, max_length=20, default_value="none"),
    )
    with collection(*fields) as made:
        made.insert([{"key": 1, "v": VECTORS[1]}, {"key": 2, "v": VECTORS[2], "n": 5, "s": "x"}])
        made.create_index("v", FLAT, sync=False)
        made.load()
        rows = made.query("key > 0", output_fields=["n", "s"])
        assert [(row["n"], row["s"]) for row in rows] == [(None, "none"), (5, "x")]
        assert keys(made.query("n is null")) == [1]


@check("Types", "vectors of half precision", needs=VERSION >= (2, 6))
def _() -> None:
    bfloat16 = (VECTORS.view(np.uint32) >> 16).astype(np.uint16)  # cut off, as the type does it
    for kind, data in (
        (DataType.FLOAT16_VECTOR, list(VECTORS.astype(np.float16))),
        (DataType.BFLOAT16_VECTOR, [row.tobytes() for row in bfloat16]),
    ):
        with collection(vector=FieldSchema("v", kind, dim=DIM)) as made:
            made.insert([{"key": n, "v": data[n]} for n in range(300)])
            made.create_index("v", FLAT, sync=False)
            made.load()
            assert made.search([data[8]], "v", L2, 1)[0].ids == [8]
            found = made.query("key == 8", output_fields=["v"])[0]["v"]
            sent = data[8] if isinstance(data[8], bytes) else data[8].tobytes()
            assert bytes(found[0] if isinstance(found, list) else found) == sent


@check("Types", "vectors of signed bytes", needs=VERSION >= (2, 6))
def _() -> None:
    data = list(np.random.default_rng(9).integers(-128, 128, (300, DIM)).astype(np.int8))
    for kind, metric in (("HNSW", "L2"), ("HNSW", "COSINE")):
        with collection(vector=FieldSchema("v", DataType.INT8_VECTOR, dim=DIM)) as made:
            made.insert([{"key": n, "v": data[n]} for n in range(300)])
            made.create_index("v", {"index_type": kind, "metric_type": metric}, sync=False)
            made.load()
            assert made.search([data[8]], "v", {"metric_type": metric}, 1)[0].ids == [8]
            found = made.query("key == 8", output_fields=["v"])[0]["v"]
            assert bytes(found[0] if isinstance(found, list) else found) == data[8].tobytes()


def sparse_rows() -> list[dict[int, float]]:
    """Row n shares the index 0 with all rows and the index n + 1 with none."""
    return [{0: 0.5, n + 1: 1.0 + n / 512} for n in range(300)]


@check("Types", "sparse vectors", needs=VERSION >= (2, 4))
def _() -> None:
    data = sparse_rows()
    with collection(vector=FieldSchema("v", DataType.SPARSE_FLOAT_VECTOR)) as made:
        made.insert([{"key": n, "v": data[n]} for n in range(150)])
        made.insert([list(range(150, 300)), data[150:]])
        made.create_index("v", {"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "IP"}, sync=False)
        made.load()
        asked = {"metric_type": "IP", "params": {"drop_ratio_search": 0.2}}
        (hits,) = made.search([{9: 2.0, 0: 1.0}], "v", asked, 3, output_fields=["v"])
        assert hits.ids[0] == 8
        assert hits.distances[0] == 0.5 + 2 * (1 + 8 / 512)
        assert hits[0].entity.get("v") == data[8]
        ranged = {"metric_type": "IP", "params": {"radius": 1.0}}
        assert made.search([{9: 2.0, 7: 2.0}], "v", ranged, 9, expr="key != 6")[0].ids == [8]
        assert made.search([{1000: 1.0}], "v", {"metric_type": "IP"}, 3)[0].ids == []
        assert made.query("key == 299", output_fields=["v"])[0]["v"] == data[299]


@check("Types", "ten vector fields, an index and a search of each", needs=VERSION >= (2, 4))
def _() -> None:
    others = tuple(FieldSchema(f"v{n}", DataType.FLOAT_VECTOR, dim=DIM) for n in range(8))
    with collection(*others, FieldSchema("sparse", DataType.SPARSE_FLOAT_VECTOR)) as made:
        rows = sparse_rows()
        turned = [np.roll(VECTORS[:300], n, axis=0) for n in range(8)]
        made.insert([list(range(300)), *turned, rows, VECTORS[:300]])
        for n, kind in enumerate(("FLAT", "HNSW", "IVF_FLAT", "IVF_SQ8") * 2):
            build = (
                {"M": 8, "efConstruction": 64} if kind == "HNSW" else {"nlist": 4} if kind[0] == "I" else {}
            )
            params = {"index_type": kind, "metric_type": "L2", "params": build}
            made.create_index(f"v{n}", params, index_name=f"i{n}", sync=False)
        made.create_index("sparse", {"index_type": "SPARSE_WAND", "metric_type": "IP"}, sync=False)
        try:
            made.load()
        except pymilvus.MilvusException as error:
            assert "there is no vector index on field: [v]" in str(error)  # noqa: PT017 - no pytest here
        else:
            raise AssertionError("loaded without an index on every field")
        made.create_index("v", FLAT, sync=False)
        made.load()
        for n in range(8):
            assert made.search(VECTORS[20:21], f"v{n}", L2, 1)[0].ids == [20 + n]
        assert made.search(VECTORS[20:21], "v", L2, 1)[0].ids == [20]
        assert made.search([{21: 1.0}], "sparse", {"metric_type": "IP"}, 5)[0].ids == [20]
        assert sorted(index.field_name for index in made.indexes) == sorted(
            ["v", "sparse", *(f"v{n}" for n in range(8))]
        )


ELEMENTS: Sequence[tuple[str, Sequence[Sequence[Any]]]] = (
    ("BOOL", [[True, False], [], [False]]),
    ("INT8", [[-128, 127], [], [0]]),
    ("INT16", [[-(2**15), 2**15 - 1], [], [0]]),
    ("INT32", [[-(2**31), 2**31 - 1], [], [0]]),
    ("INT64", [[-(2**63), 2**63 - 1], [], [0]]),
    ("FLOAT", [[-1.5, 2.0**100], [], [0.0]]),
    ("DOUBLE", [[-1.0e300, 0.1], [], [0.0]]),
    ("VARCHAR", [["é 漢字", ""], [], ["x" * 50]]),
)
"""An element type, and arrays that must come back as they are."""


def array_field(name: str, element: str, **more: Any) -> FieldSchema:
    options = {"element_type": getattr(DataType, element), "max_capacity": 8, "max_length": 50, **more}
    return FieldSchema(name, DataType.ARRAY, **options)


@check("Types", "ARRAY of every element type")
def _() -> None:
    with collection(*(array_field(element.lower(), element) for element, _ in ELEMENTS)) as made:
        filled(made, *(list(values) for _, values in ELEMENTS), rows=3)
        rows = made.query("key >= 0", output_fields=["*"])
        for element, values in ELEMENTS:
            found = [list(row[element.lower()]) for row in rows]
            assert found == list(values), f"{element}: {found}"
        hits = made.search(VECTORS[:1], "v", L2, 1, output_fields=["varchar"])[0]
        assert list(hits[0].entity.get("varchar")) == ["é 漢字", ""]


@check("Types", "nullable ARRAY, upsert and delete by its filters", needs=VERSION >= (2, 6))
def _() -> None:
    with collection(array_field("a", "INT32", nullable=True)) as made:
        made.insert([{"key": n, "v": VECTORS[n], "a": [n, n + 1] if n % 2 else None} for n in range(8)])
        made.create_index("v", FLAT, sync=False)
        made.load()
        assert keys(made.query("a is null")) == [0, 2, 4, 6]
        assert keys(made.query("not array_contains(a, 1)")) == [3, 5, 7]
        made.upsert([{"key": 0, "v": VECTORS[0], "a": []}, {"key": 1, "v": VECTORS[1], "a": None}])
        made.delete("array_contains_any(a, [3, 9])")
        rows = made.query("key >= 0", output_fields=["a"])
        assert {row["key"]: row["a"] and list(row["a"]) for row in rows} == {
            0: [], 1: None, 2: None, 4: None, 5: [5, 6], 6: None, 7: [7, 8],
        }  # fmt: skip


# indexes


def index_of(kind: str, metric: str, params: dict[str, Any], search: dict[str, Any]) -> Callable[[], None]:
    def find() -> None:
        binary = kind.startswith("BIN")
        bits = np.random.default_rng(4).integers(0, 256, (300, 4), np.uint8)
        data = [row.tobytes() for row in bits] if binary else VECTORS
        vector = FieldSchema("v", DataType.BINARY_VECTOR, dim=32) if binary else None
        with collection(vector=vector) as made:
            made.insert([list(range(300)), data])
            made.create_index("v", {"index_type": kind, "metric_type": metric, "params": params}, sync=False)
            assert made.index().params["index_type"] == kind
            made.load()
            asked = {"metric_type": metric, "params": search}
            best = int(np.argmax(VECTORS @ VECTORS[8])) if metric == "IP" else 8
            assert made.search(list(data[8:9]), "v", asked, 1)[0].ids == [best]

    return find


for kind, metric, params, search in INDEXES:
    check("Indexes", f"{kind}, {metric}")(index_of(kind, metric, params, search))


def sparse_index(kind: str, params: dict[str, Any]) -> Callable[[], None]:
    def find() -> None:
        with collection(vector=FieldSchema("v", DataType.SPARSE_FLOAT_VECTOR)) as made:
            made.insert([list(range(300)), sparse_rows()])
            made.create_index("v", {"index_type": kind, "metric_type": "IP", "params": params}, sync=False)
            assert made.index().params["index_type"] == kind
            made.load()
            assert made.search([{9: 1.0}], "v", {"metric_type": "IP"}, 3)[0].ids == [8]

    return find


for kind, params in (
    ("SPARSE_INVERTED_INDEX", {"inverted_index_algo": "DAAT_MAXSCORE"}),
    ("SPARSE_WAND", {"drop_ratio_build": 0.2}),
    ("AUTOINDEX", {}),
):
    check("Indexes", f"{kind}, sparse, IP", needs=VERSION >= (2, 4))(sparse_index(kind, params))


@check("Indexes", "alter and drop the property mmap.enabled", needs=VERSION >= (2, 6))
def _() -> None:
    with collection() as made:
        made.insert([list(range(300)), VECTORS])
        params = {"index_type": "HNSW", "metric_type": "L2", "params": {"M": 8, "efConstruction": 64}}
        made.create_index("v", params, index_name="i", sync=False)
        made.alter_index("i", {"mmap.enabled": True})
        assert made.index(index_name="i").params["mmap.enabled"] in ("True", "true")
        made.load()
        assert made.search(list(VECTORS[8:9]), "v", {"metric_type": "L2"}, 1)[0].ids == [8]
        try:
            made.alter_index("i", {"mmap.enabled": False})
        except pymilvus.MilvusException as error:
            assert "can't alter index on loaded collection" in str(error)  # noqa: PT017 - no pytest here
        else:
            raise AssertionError("altered while the collection is loaded")


@check("Indexes", "describe, drop")
def _() -> None:
    with collection() as made:
        made.create_index("v", L2 | {"index_type": "HNSW", "params": {"M": 8, "efConstruction": 64}})
        assert [index.field_name for index in made.indexes] == ["v"]
        assert made.has_index()
        made.drop_index()
        assert not made.has_index()
        made.create_index("v", {"index_type": "AUTOINDEX"})
        shown = made.index().params
        assert (shown["index_type"], shown["metric_type"]) == ("AUTOINDEX", "COSINE")


# filters: one collection for all of them


@check("Filters", "")
def _() -> None:
    fields = (
        FieldSchema("n", DataType.INT32),
        FieldSchema("f", DataType.DOUBLE),
        FieldSchema("b", DataType.BOOL),
        FieldSchema("s", DataType.VARCHAR, max_length=20),
        FieldSchema("j", DataType.JSON),
    )
    with collection(*fields, enable_dynamic_field=True) as made:
        made.insert(
            [
                {
                    "key": row,
                    "n": row - 10,
                    "f": row / 4,
                    "b": row % 2 == 0,
                    "s": f"s{row % 7}/{row}",
                    "j": {"a": {"b": row}, "list": [row, row + 1]},
                    "tone": "light" if row % 3 else "dark",
                    "v": VECTORS[row],
                }
                for row in range(20)
            ]
        )
        made.create_index("v", FLAT, sync=False)
        made.load()
        for text, matches in FILTERS:
            expected = [row for row in range(20) if matches(row)]

            def read(text: str = text, expected: list[int] = expected) -> None:
                found = keys(made.query(text))
                assert found == expected, f"{found} instead of {expected}"

            program.run("Filters", f"`{text}`", read)


@check("Filters", "values apart from the text", needs=VERSION >= (2, 5))
def _() -> None:
    with collection(
        FieldSchema("n", DataType.INT32), FieldSchema("s", DataType.VARCHAR, max_length=20)
    ) as made:
        filled(made, list(range(20)), [f"s{row}" for row in range(20)], rows=20)
        for text, values, expected in (
            ("n > {low} and s like {pattern}", {"low": 10, "pattern": "s1_"}, list(range(11, 20))),
            ("n in {some} or s == {word}", {"some": [1, 2], "word": 's3"'}, [1, 2]),
            ("n not in {none} and s =~ {pattern}", {"none": [], "pattern": "[45]$"}, [4, 5, 14, 15]),
        ):
            found = keys(made.query(text, expr_params=values))
            assert found == expected, f"{text}: {found} instead of {expected}"


@check("Filters", "sets in bytes: `membership_match`", needs=hasattr(pymilvus, "build_roaring_bitmap"))
def _() -> None:
    with collection(
        FieldSchema("n", DataType.INT32), FieldSchema("s", DataType.VARCHAR, max_length=20)
    ) as made:
        filled(made, list(range(20)), [f"s{row}" for row in range(20)], rows=20)
        exact = pymilvus.build_roaring_bitmap([3, 5, 99])
        words = pymilvus.build_bloom_filter(["s4", "s6"])
        for text, blob, expected in (
            ("membership_match(n, {set}, type=roaring)", exact, [3, 5]),
            ("n < 6 and not membership_match(n, {set})", exact, [0, 1, 2, 4]),
            ("membership_match(s, {set}, type=bloom)", words, [4, 6]),
        ):
            found = keys(made.query(text, expr_params={"set": blob}))
            assert found == expected, f"{text}: {found} instead of {expected}"
        made.delete("membership_match(n, {set})", expr_params={"set": exact})
        assert keys(made.query("n < 6", consistency_level="Strong")) == [0, 1, 2, 4]


ARRAY_FILTERS: Sequence[tuple[str, Callable[[int], bool]]] = (
    ("array_contains(n, 7)", lambda row: row in (6, 7)),
    ('array_contains_all(s, ["a", "s3"])', lambda row: row == 3),
    ('ARRAY_CONTAINS_ANY(s, ["b", "s3"])', lambda row: row == 3 or row % 2 == 1),
    ("array_length(n) == 3", lambda row: row % 3 == 1),
    ("n[1] > 15", lambda row: row > 14),
    ('s[0] == "a"', lambda row: row % 2 == 0 or row == 3),
    ("n == [4, 5, 0]", lambda row: row == 4),
    ("n[2] in [0]", lambda row: row % 3 == 1),
)
"""A filter on arrays and which of twenty rows it matches."""


@check("Filters", "arrays")
def _() -> None:
    numbers = [[row, row + 1, 0] if row % 3 == 1 else [row, row + 1] for row in range(20)]
    words = [["a", "s3"] if row == 3 else ["b" if row % 2 else "a"] for row in range(20)]
    with collection(array_field("n", "INT16"), array_field("s", "VARCHAR")) as made:
        filled(made, numbers, words, rows=20)
        for text, matches in ARRAY_FILTERS:
            expected = [row for row in range(20) if matches(row)]
            found = keys(made.query(text))
            assert found == expected, f"{text}: {found} instead of {expected}"


# what is refused


def refused(call: Callable[[Collection], object]) -> Callable[[], None]:
    def ask() -> None:
        with collection() as made:
            filled(made, rows=5)
            began = time.monotonic()
            text = "it was not refused"
            try:
                call(made)
            except pymilvus.MilvusException as error:
                text = str(error)
            assert "not supported" in text, text
            assert time.monotonic() - began < 30  # the client asked once, and not again for minutes

    return ask
