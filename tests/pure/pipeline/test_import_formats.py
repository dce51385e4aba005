"""The same rows in every format that an import reads, and files that are damaged or hold something else."""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.ids import CollectionID, FieldID, PartitionID
from elanus.core.imports import COMMAS, CsvFormat
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.structs import StructSchema
from elanus.core.timestamps import Timestamp
from elanus.pipeline import import_json
from elanus.pipeline.import_files import import_rows, survey
from elanus.pipeline.import_input import input_file
from elanus.pipeline.import_json import JsonLinesSource
from elanus.pipeline.import_plan import ImportPlan, cut
from elanus.pipeline.import_sources import tables
from elanus.storage.objects import open_store


def field(number: int, name: str, data_type: DataType, **options: Any) -> FieldSchema:
    return FieldSchema(FieldID(100 + number), name, data_type, **options)


PLAIN = (
    field(0, "id", DataType.INT64, is_primary=True),
    field(1, "flag", DataType.BOOL),
    field(2, "small", DataType.INT16),
    field(3, "ratio", DataType.DOUBLE),
    field(4, "name", DataType.VARCHAR, max_length=50),
    field(5, "doc", DataType.JSON),
    field(6, "v", DataType.FLOAT_VECTOR, dim=2),
    field(7, "bits", DataType.BINARY_VECTOR, dim=16),
    field(8, "half", DataType.FLOAT16_VECTOR, dim=2),
    field(9, "bytes", DataType.INT8_VECTOR, dim=2),
)
NESTED = (
    field(10, "tags", DataType.ARRAY, element_type=DataType.VARCHAR, max_capacity=5, max_length=9),
    field(11, "sparse", DataType.SPARSE_FLOAT_VECTOR),
    field(12, "maybe", DataType.INT32, nullable=True),
    field(13, "where", DataType.GEOMETRY, nullable=True),
    field(14, "since", DataType.TIMESTAMPTZ),
)
DYNAMIC = field(20, "$meta", DataType.JSON, is_dynamic=True)
SCHEMA = CollectionSchema("docs", (*PLAIN, *NESTED, DYNAMIC), enable_dynamic=True)
COLUMNS = CollectionSchema("docs", PLAIN)

Row = dict[str, Any]


def row(number: int) -> Row:
    """As a program would have it: vectors are lists of numbers, those of bits lists of bytes."""
    return {
        "id": number,
        "flag": number % 2 == 0,
        "small": -number,
        "ratio": number / 4,
        "name": f'a "näme", {number}\nof two lines',
        "doc": {"n": number, "of": [1, None]},
        "v": [number / 2, 1.5],
        "bits": [number % 256, 7],
        "half": [number / 2, -1.0],
        "bytes": [number % 100, -3],
        "tags": [f"t{number}", ""],
        "sparse": {"7": 0.5, "3": number + 0.25},
        "maybe": None if number % 3 else number,
        "where": f"POINT ({number} 1)" if number % 2 else None,
        "since": f"2025-01-0{number % 9 + 1}T08:00:00+08:00",
        "extra": {"n": number},
    }


ROWS = [row(n) for n in range(10)]


def of(rows: Iterable[Row], schema: CollectionSchema) -> list[Row]:
    names = {f.name for f in schema.fields} | ({"extra"} if schema.dynamic_field else set())
    return [{name: value for name, value in row.items() if name in names} for row in rows]


def as_json(rows: Sequence[Row]) -> bytes:
    return json.dumps({"rows": rows}).encode()


def as_list(rows: Sequence[Row]) -> bytes:
    return json.dumps(rows, indent=2, ensure_ascii=False).encode()


def as_lines(rows: Sequence[Row]) -> bytes:
    return b"\n".join(json.dumps(row).encode() for row in rows) + b"\n\n"


def as_csv(rows: Sequence[Row], separator: str = ",") -> bytes:
    out = io.StringIO()
    names = [name for name in rows[0] if name != "extra"]
    writer = csv.DictWriter(out, names, delimiter=separator)
    writer.writeheader()
    for one in rows:
        texts = {
            name: json.dumps(value) if isinstance(value, dict | list) else value
            for name, value in one.items()
        }
        texts.pop("extra", None)
        writer.writerow(texts)
    return out.getvalue().encode()


def put(tmp_path: Path, name: str, content: bytes) -> str:
    file = tmp_path / "import" / name
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_bytes(content)
    return name


def put_numpy(tmp_path: Path, columns: Mapping[str, np.ndarray], directory: str = "part") -> list[str]:
    names = []
    for name, values in columns.items():
        out = io.BytesIO()
        np.save(out, values, allow_pickle=True)
        names.append(put(tmp_path, f"{directory}/{name}.npy", out.getvalue()))
    return names


def imported(
    tmp_path: Path, files: Sequence[str], schema: CollectionSchema, csv_format: CsvFormat = COMMAS
) -> pa.Table:
    source = open_store((tmp_path / "import").as_uri())
    surveyed = survey(source, tables(files, csv_format), schema)
    parts = [part for task in cut(surveyed, 4) for part in task]
    plan = ImportPlan(
        5,
        CollectionID(7),
        PartitionID(8),
        schema,
        ("v0",),
        tuple(parts),
        1000,
        10_000,
        2**30,
        Timestamp(99),
        source.url,
        "",
        "",
    )
    return pa.Table.from_batches(import_rows(plan, source), schema.arrow_schema)


def expected(tmp_path: Path, schema: CollectionSchema) -> pa.Table:
    """The same rows from Parquet."""
    rows = [one | {"doc": json.dumps(one["doc"]), "half": one["half"]} for one in of(ROWS, schema)]
    for one in rows:
        if "sparse" in one:
            one["sparse"] = [(int(index), value) for index, value in one["sparse"].items()]
    types = {
        "bits": pa.list_(pa.uint8()),
        "sparse": pa.map_(pa.int64(), pa.float64()),
        "half": pa.list_(pa.float32()),
        "bytes": pa.list_(pa.int64()),
        "v": pa.list_(pa.float32()),
    }
    columns = {name: pa.array([one[name] for one in rows], types.get(name)) for name in rows[0]}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    return imported(
        tmp_path, [put(tmp_path, "rows.parquet", (tmp_path / "rows.parquet").read_bytes())], schema
    )


@pytest.mark.parametrize(
    ("name", "encode"),
    [("a.json", as_json), ("a.json", as_list), ("a.jsonl", as_lines), ("a.ndjson", as_lines)],
)
def test_json_gives_the_rows_that_parquet_gives(
    tmp_path: Path, name: str, encode: Callable[[Sequence[Row]], bytes]
) -> None:
    file = put(tmp_path, name, encode(of(ROWS, SCHEMA)))
    assert imported(tmp_path, [file], SCHEMA).equals(expected(tmp_path, SCHEMA))


@pytest.mark.parametrize(
    ("name", "encode"), [("a.json", as_json), ("a.json", as_list), ("a.jsonl", as_lines), ("a.csv", as_csv)]
)
def test_a_byte_order_mark_is_no_part_of_the_rows(
    tmp_path: Path, name: str, encode: Callable[[Sequence[Row]], bytes]
) -> None:
    schema = CollectionSchema("docs", (*PLAIN, *NESTED))
    file = put(tmp_path, name, codecs.BOM_UTF8 + encode(of(ROWS, schema)))
    assert imported(tmp_path, [file], schema).equals(expected(tmp_path, schema))


def test_csv_gives_the_rows_that_parquet_gives(tmp_path: Path) -> None:
    schema = CollectionSchema("docs", (*PLAIN, *NESTED))
    file = put(tmp_path, "a.csv", as_csv(of(ROWS, schema)))
    assert imported(tmp_path, [file], schema).equals(expected(tmp_path, schema))


@pytest.mark.parametrize("separator", [";", "\t", "|", " "])
def test_csv_files_with_another_separator(tmp_path: Path, separator: str) -> None:
    schema = CollectionSchema("docs", (*PLAIN, *NESTED))
    file = put(tmp_path, "a.csv", as_csv(of(ROWS, schema), separator))
    assert imported(tmp_path, [file], schema, CsvFormat(separator)).equals(expected(tmp_path, schema))


def test_csv_files_with_another_text_for_nulls(tmp_path: Path) -> None:
    fields = (
        field(1, "n", DataType.INT32, nullable=True),
        field(2, "name", DataType.VARCHAR, max_length=9, nullable=True),
        field(3, "title", DataType.VARCHAR, max_length=9),
        field(4, "v", DataType.FLOAT_VECTOR, dim=2, nullable=True),
    )
    schema = CollectionSchema("docs", (PLAIN[0], *fields))
    text = b'id,n,name,title,v\n1,NULL,NULL,NULL,NULL\n2,7,,,"[1,2]"\n3,"NULL","NULL","","NULL"\n'
    rows = imported(tmp_path, [put(tmp_path, "a.csv", text)], schema, CsvFormat(null="NULL"))
    assert rows["n"].to_pylist() == [None, 7, None]
    assert rows["name"].to_pylist() == [None, "", None]
    assert rows["title"].to_pylist() == ["NULL", "", ""]
    assert rows["v"].to_pylist() == [None, [1, 2], None]
    empty = put(tmp_path, "b.csv", b"id,n,name,title,v\n1,,a,b,NULL\n")
    with pytest.raises(InvalidParameter, match="row 0: field n of type INT32 is empty: 0 values"):
        imported(tmp_path, [empty], schema, CsvFormat(null="NULL"))


def test_a_value_of_a_csv_file_is_one_value(tmp_path: Path) -> None:
    schema = CollectionSchema("docs", (PLAIN[0], field(1, "n", DataType.INT32)))
    for number, content in enumerate((b'id,n\n1,5\n2,"1,2"\n', b'id,n\n1,""\n')):
        file = put(tmp_path, f"{number}.csv", content)
        with pytest.raises(InvalidParameter, match=r"field n of type INT32 is (1,2|empty): \d values"):
            imported(tmp_path, [file], schema)


def test_struct_arrays_in_csv_are_those_of_json(tmp_path: Path) -> None:
    clips = StructSchema(FieldID(130), "clips", nullable=True)
    array = {"max_capacity": 4, "nullable": True}
    members = (
        field(31, "clips[n]", DataType.ARRAY, element_type=DataType.INT64, **array),
        field(32, "clips[v]", DataType.ARRAY_OF_VECTOR, element_type=DataType.FLOAT_VECTOR, dim=2, **array),
    )
    schema = CollectionSchema("docs", (PLAIN[0], *members), structs=(clips,))
    given = [[{"n": 1, "v": [0.5, 1]}, {"n": 2, "v": [1, 2]}], [], None]
    rows = [{"id": number, "clips": value} for number, value in enumerate(given)]
    found = imported(tmp_path, [put(tmp_path, "a.csv", as_csv(rows))], schema)
    assert found.equals(imported(tmp_path, [put(tmp_path, "a.json", as_list(rows))], schema))
    assert found["clips[n]"].to_pylist() == [[1, 2], [], None]
    with pytest.raises(InvalidParameter, match="row 0: field clips is no list of objects"):
        imported(tmp_path, [put(tmp_path, "b.csv", b"id,clips\n1,[1]\n")], schema)


def test_numpy_columns_give_the_rows_that_parquet_gives(tmp_path: Path) -> None:
    columns = {name: np.array([one[name] for one in ROWS]) for name in ("id", "flag", "ratio", "name", "v")}
    columns |= {
        "small": np.array([one["small"] for one in ROWS], ">i2"),
        "doc": np.array([json.dumps(one["doc"]).encode() for one in ROWS]),
        "bits": np.array([one["bits"] for one in ROWS], np.uint8),
        "half": np.array([one["half"] for one in ROWS], np.float16),
        "bytes": np.array([one["bytes"] for one in ROWS], np.int8),
    }
    assert imported(tmp_path, put_numpy(tmp_path, columns), COLUMNS).equals(expected(tmp_path, COLUMNS))


def test_numpy_files_of_two_directories_are_two_tables(tmp_path: Path) -> None:
    schema = CollectionSchema("docs", (PLAIN[0], PLAIN[6]))
    names = [
        name
        for part in (1, 2)
        for name in put_numpy(
            tmp_path, {"id": np.arange(part), "v": np.zeros((part, 2), np.float32)}, f"rows/{part}"
        )
    ]
    assert imported(tmp_path, names, schema)["id"].to_pylist() == [0, 0, 1]


def test_groups_of_lines_cover_each_line_once(tmp_path: Path) -> None:
    schema = CollectionSchema("docs", (PLAIN[0], PLAIN[4]))
    rows = [{"id": n, "name": "x" * (n * 7 % 40)} for n in range(200)]
    content = as_lines(rows)
    store = open_store((tmp_path / "import").as_uri())
    file = input_file(store, put(tmp_path, "a.jsonl", content))
    for group_bytes in (1, 7, 31, 64, 100, 1000, len(content)):
        source = JsonLinesSource(file, schema, group_bytes)
        groups = list(source.groups())
        keys: list[int] = []
        for group in groups:
            place, before = source.place(group), len(keys)
            if group_bytes >= 100:
                assert place.row(0) == before
            for lines in source.batches(group, 3):
                keys += source.columns(lines, place)["id"].to_pylist()
            assert len(keys) - before <= group.rows, "the bound is none"
        assert keys == list(range(200))


REFUSED: dict[str, tuple[str, bytes, str]] = {
    "no JSON": ("a.json", b'{"id": 1}', r"a\.json is neither a JSON list of rows nor"),
    "JSON lines as JSON": ("a.json", b'{"id": 1}\n{"id": 2}', r"one row a line the ending \.jsonl"),
    "no rows": ("a.json", b'{"data": []}', r"rows"),
    "a row that is none": (
        "a.json",
        b"[1]",
        r"a\.json, row 0 is no JSON object: Expected `object`, got `int`",
    ),
    "a line that is none": ("a.jsonl", b'{"id": 1}\n[2]\n', r"a\.jsonl, row 1 is no JSON object"),
    "a text for a number": ("a.jsonl", b'{"id": 1}\n{"id": "2"}\n', r"row 1: field id .*\"2\".*[Ee]xpected"),
    "a number beyond": ("a.json", as_list([{"id": 1 << 80}]), r"row 0: field id"),
    "a null": ("a.json", as_list([{"id": 1, "name": None, "v": [1, 2]}]), r"row 0: field name is null"),
    "a short vector": ("a.json", as_list([{"id": 1, "name": "", "v": [1]}]), r"field v has 1 values"),
    "an unknown key": (
        "a.json",
        as_list([{"id": 1, "name": "", "v": [1, 2], "w": 1}]),
        r"column w is no field",
    ),
    "a missing key": ("a.json", as_list([{"id": 1, "name": ""}]), r"has no column v"),
    "CSV of other width": ("a.csv", b"id,name,v\n1,a\n", r"a\.csv cannot be read as CSV"),
    "CSV with a column twice": ("a.csv", b"id,name,v,name\n1,a,[1],b\n", r"a\.csv has column name twice"),
    "CSV of no number": ("a.csv", b'id,name,v\nx,a,"[1,2]"\n', r"row 0: field id .*x"),
    "CSV of no vector": ("a.csv", b"id,name,v\n1,a,1 2\n", r"row 0: field v"),
    "no Parquet": ("a.parquet", b"PAR1", r"a\.parquet cannot be read as Parquet: "),
    "text": ("a.txt", b"id,name,v\n", r"a\.txt .* Parquet, which .* not end in .*\.jsonl, .*\.csv, \.npy: "),
    "no NumPy": ("a/id.npy", b"\x93NUMPY", r"a/id\.npy cannot be read as NumPy"),
    "no Python code": ("a/id.npy", b"\x93NUMPY\x01\x00\x10\x00{__import__('x')}", r"cannot be read as NumPy"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_by_file_and_row(tmp_path: Path, case: str) -> None:
    name, content, why = REFUSED[case]
    schema = CollectionSchema("docs", (PLAIN[0], PLAIN[4], PLAIN[6]))
    with pytest.raises(InvalidParameter, match=why):
        imported(tmp_path, [put(tmp_path, name, content)], schema)


def test_numpy_columns_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    schema = CollectionSchema("docs", (PLAIN[0], PLAIN[6]))
    ids, vectors = np.arange(3), np.zeros((3, 2), np.float32)
    cases: list[tuple[dict[str, np.ndarray], str]] = [
        ({"id": ids[:2], "v": vectors}, r"id\.npy has 2 rows, .*v\.npy has 3"),
        ({"id": np.array([1, "a", None], object), "v": vectors}, r"id\.npy holds Python objects"),
        ({"id": ids, "v": vectors.reshape(3, 2, 1)}, r"v\.npy has shape"),
        ({"id": ids, "v": np.asfortranarray(vectors)}, r"v\.npy is stored column by column .*contiguous"),
        ({"id": ids.astype("M8[s]"), "v": vectors}, r"id\.npy has dtype"),
        ({"id": ids, "v": vectors[:, :1]}, r"does not fit field v"),
        ({"id": ids}, r"has no column v"),
    ]
    for number, (columns, why) in enumerate(cases):
        with pytest.raises(InvalidParameter, match=why):
            imported(tmp_path, put_numpy(tmp_path, columns, f"part{number}"), schema)


def test_a_numpy_file_that_ends_early_is_refused(tmp_path: Path) -> None:
    (name,) = put_numpy(tmp_path, {"id": np.arange(100)})
    put(tmp_path, name, (tmp_path / "import" / name).read_bytes()[:-8])
    with pytest.raises(InvalidParameter, match=r"id\.npy ends before its 100 rows"):
        imported(tmp_path, [name], CollectionSchema("docs", (PLAIN[0],)))


def test_a_list_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_json, "JSON_BYTES_MAX", 10)
    with pytest.raises(InvalidParameter, match=r"a JSON list may have 10: write .* JSON lines"):
        imported(tmp_path, [put(tmp_path, "a.json", as_list(ROWS))], SCHEMA)


def test_rows_may_give_dynamic_keys_themselves_or_in_one_object(tmp_path: Path) -> None:
    schema = CollectionSchema("docs", (PLAIN[0], DYNAMIC), enable_dynamic=True)
    rows = [
        {"id": 1, "$meta": {"a": 1}},
        {"id": 2, "$meta": '{"a": 2}', "b": [True]},
        {"id": 3},
    ]
    found = imported(tmp_path, [put(tmp_path, "a.json", as_list(rows))], schema)["$meta"].to_pylist()
    assert list(map(json.loads, found)) == [{"a": 1}, {"a": 2, "b": [True]}, {}]
    with pytest.raises(InvalidParameter, match=r"\$meta is no JSON object"):
        imported(tmp_path, [put(tmp_path, "b.json", as_list([{"id": 1, "$meta": "[]"}]))], schema)


def test_sparse_vectors_may_be_texts_in_parquet(tmp_path: Path) -> None:
    """As `pymilvus.bulk_writer` writes them."""
    schema = CollectionSchema("docs", (PLAIN[0], NESTED[1]))
    texts = [json.dumps(one["sparse"]) for one in ROWS]
    put(tmp_path, "a.parquet", b"")
    pq.write_table(pa.table({"id": range(10), "sparse": texts}), tmp_path / "import" / "a.parquet")
    found = imported(tmp_path, ["a.parquet"], schema)
    assert found.equals(imported(tmp_path, [put(tmp_path, "a.json", as_list(of(ROWS, schema)))], schema))


def test_empty_files_have_no_rows(tmp_path: Path) -> None:
    files = [put(tmp_path, "a.json", b"[]"), put(tmp_path, "a.jsonl", b""), put(tmp_path, "a.csv", b"id\n")]
    assert imported(tmp_path, files, CollectionSchema("docs", (PLAIN[0],))).num_rows == 0
