"""Texts that are not UTF-8, and values that no column can hold: refused by file and row like all others."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.pipeline.import_files import fitting, given_rows, survey
from elanus.pipeline.import_rejects import Rejects
from elanus.pipeline.import_sources import tables
from elanus.storage.objects import open_store

SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "t", DataType.VARCHAR, max_length=9, nullable=True),
        FieldSchema(FieldID(102), "j", DataType.JSON, nullable=True),
        FieldSchema(FieldID(103), "s", DataType.SPARSE_FLOAT_VECTOR, nullable=True),
        FieldSchema(
            FieldID(105),
            "tags",
            DataType.ARRAY,
            element_type=DataType.VARCHAR,
            max_capacity=2,
            max_length=9,
            nullable=True,
        ),
        FieldSchema(FieldID(104), "$meta", DataType.JSON, is_dynamic=True),
    ),
    enable_dynamic=True,
)
DEEP = b"[" * 5000 + b"]" * 5000


def imported(
    directory: Path,
    files: dict[str, bytes],
    rejects: Rejects | None,
    schema: CollectionSchema = SCHEMA,
    there: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """``there``: further files, which exist."""
    for name, content in files.items():
        (directory / name).write_bytes(content)
    source = open_store(directory.as_uri())
    rows = []
    for given in given_rows(survey(source, tables([*files, *there]), schema), source, schema, 1000):
        for batch, _ in fitting(schema, given.table, given.rows, given.place, 1, rejects):
            rows += batch.to_pylist()
    return rows


LINES = {
    "a text": (b'"t":"caf\xe9"', r"field t of type VARCHAR is .*(codec can't decode|Invalid UTF-8)"),
    "a JSON string": (b'"j":"\xe9"', r"json field 'j' is illegal in row 1"),
    "a string within a document": (b'"j":{"a":"\xe9"}', r"json field 'j' is illegal in row 1"),
    "a key": (b'"\xe9":1', r"row 1 is no JSON object"),
    "a dynamic value": (b'"x":"\xe9"', r"illegal in row 1"),
    "dynamic rows": (b'"$meta":"{\\"a\\":\xe9}"', r"field \$meta is no JSON object"),
    "a sparse vector": (b'"s":{"\xe9":1}', r"field s holds no sparse vector"),
    "an index of 67 bits": (b'"s":{"99999999999999999999":1}', r"field s holds an index of more than 64"),
    "indices of 67 bits": (
        b'"s":{"indices":[99999999999999999999],"values":[1]}',
        r"field s holds an index of more than 64 bits: \{'indices': \[99999999999999999999\]",
    ),
    "a deep document": (b'"j":' + DEEP, r"row 1 is no JSON object: maximum recursion depth"),
    "half of a character": (rb'"t":"\ud83d"', r"row 1 is no JSON object: it holds \\ud83d, which is half"),
    "the other half": (
        rb'"t":"\\\ud83d\ude00\udc00"',
        r"it holds \\udc00, which .*: write it with",
    ),
    "half of a dynamic character": (
        rb'"$meta":"{\"a\":\"\\uD83D\"}"',
        r"\$meta is no .* \\uD83D, which",
    ),
    "deep dynamic rows": (b'"$meta":"{\\"a\\":' + DEEP + b'}"', r"field \$meta is no JSON object"),
}


@pytest.mark.parametrize("case", LINES)
def test_a_malformed_row_is_refused_and_may_be_left_out(tmp_path: Path, case: str) -> None:
    value, why = LINES[case]
    files = {"a.jsonl": b'{"id":1,"t":"ok"}\n{"id":2,' + value + b"}\n"}
    with pytest.raises(InvalidParameter, match=why):
        imported(tmp_path, files, None)
    rejects = Rejects(1)
    assert [row["id"] for row in imported(tmp_path, files, rejects)] == [1]
    assert len(rejects) == 1


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'[{"id":1}, {"\xe9":1}]', "row 1 is no JSON object: .*(codec|UTF-8)"),
        (b'{"rows":[{"id":1,"j":' + DEEP + b"}]}", "row 0 is no JSON object: maximum recursion depth"),
        (
            b'\xef\xbb\xbf[{"t":"[}"},\n{"id":1}\n,{"id":01},{"id":2}]',
            "row 2 is no JSON object: JSON is malf",
        ),
        (b'{"a": {"rows": [1]}, "rows": [{}, 7]}', "row 1 is no JSON object: Expected `object`, got `int`"),
        (b'[{"id":1},{"id":2', "row 1 is no JSON object: Input data was truncated"),
        (rb'[{"id":1,"t":"\ud83d!"}]', r"row 0 is no JSON object: it holds \\ud83d, which is half"),
        (b'[{"id":NaN}]', "row 0 is no JSON object: JSON is malformed"),
    ],
)
def test_a_list_with_a_malformed_row_is_refused_by_its_row(tmp_path: Path, content: bytes, why: str) -> None:
    with pytest.raises(InvalidParameter, match=rf"a\.json, {why}"):
        imported(tmp_path, {"a.json": content}, None)


@pytest.mark.parametrize(
    "content",
    [b"", b"7", b"[", b"[{} {}]", b"[{},]", b'{"rows"}', b'{"rows":{}}', b'{"rows":[{}]', b'{"a":1 "b"}'],
)
def test_what_is_no_list_of_rows_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InvalidParameter, match=r"a\.json is neither a JSON list of rows"):
        imported(tmp_path, {"a.json": content}, None)


def parquet(name: bytes) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"id": [1], "n" * len(name): ["x"]}), out, store_schema=False)
    return out.getvalue().replace(b"n" * len(name), name)


@pytest.mark.parametrize(
    ("file", "content", "form"),
    [("a.csv", b"id,caf\xe9\n1,x\n", "CSV"), ("a.parquet", parquet(b"caf\xe9!"), "Parquet")],
)
def test_a_name_of_a_column_that_is_not_utf8_is_refused(
    tmp_path: Path, file: str, content: bytes, form: str
) -> None:
    with pytest.raises(InvalidParameter, match=rf"{file} cannot be read as {form}: .*codec can't decode"):
        imported(tmp_path, {file: content}, None)


def not_utf8(*values: bytes) -> pa.Array:
    """As Spark writes what it has cast from binary."""
    held = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(held), held.buffers())


WRONG = not_utf8(b"ok", b"fine", b"caf\xe9")


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("t", WRONG),
        ("t", WRONG.dictionary_encode()),
        ("tags", pa.ListArray.from_arrays([0, 1, 2, 3], WRONG)),
        ("extra", WRONG),
        ("extra", pa.StructArray.from_arrays([WRONG], ["k"])),
        ("extra", pa.MapArray.from_arrays([0, 1, 2, 3], WRONG, pa.array([1, 2, 3]))),
        ("extra", pa.FixedSizeListArray.from_arrays(WRONG, 1)),
    ],
)
def test_a_text_of_a_parquet_file_that_is_not_utf8_is_refused_by_its_row(
    tmp_path: Path, name: str, column: pa.Array
) -> None:
    """It was stored, and no query node could load the segment."""
    out = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2, 3], name: column}), out)
    files = {"a.parquet": out.getvalue()}
    with pytest.raises(InvalidParameter, match=rf"row 2: field {name} holds a text that is not UTF-8"):
        imported(tmp_path, files, None)
    rejects = Rejects(1)
    assert [row["id"] for row in imported(tmp_path, files, rejects)] == [1, 2]
    assert len(rejects) == 1


def saved(values: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, values)
    return out.getvalue()


def coded(first: int, second: int, order: str) -> np.ndarray:
    """Two texts of nine characters, which begin with these codes: NumPy looks at none of them."""
    codes = np.full((2, 9), 0x61, f"{order}u4")
    codes[:, 0] = first, second
    return codes.view(f"{order}U9").reshape(2)


def header(text: str) -> bytes:
    padded = text.encode().ljust(9990)[:9990] + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + bytes(80)


def header_of(shape: str, descr: str = "<i8") -> bytes:
    return header(f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (saved(np.array([b"ok", b"caf\xe9"])), r"t\.npy, row 1: b'caf\\xe9' is no text in UTF-8"),
        (saved(np.array(["ok", "caf\ud800"])), r"t\.npy, row 1: 'caf\\ud800' is no text in UTF-8"),
        (saved(coded(0x61, 0x110000, "=")), r"t\.npy, row 1: 0x110000 is no character"),
        (saved(coded(0x61, 0x61000000, "<")), r"t\.npy, row 1: 0x61000000 is no character"),
        (saved(coded(0x61, 0xFFFFFFFF, ">")), r"t\.npy, row 1: 0xffffffff is no character"),
        (saved(np.array([0x61, 0x110000], "<u4").view("<U1")), r"t\.npy, row 1: 0x110000 is no character"),
        (header_of("(2,-1)"), r"t\.npy has shape \(2, -1\)"),
        (header_of("(-2,)"), r"t\.npy has shape \(-2,\)"),
        (header_of("(2,0)"), r"t\.npy has shape \(2, 0\)"),
        (header_of("(2,)", "|V0"), r"t\.npy has shape \(2,\) and dtype \|V0"),
        (header("{[]: 1}"), r"t\.npy cannot be read as NumPy"),
        (header("-" * 9000 + "1"), r"t\.npy cannot be read as NumPy"),
    ],
)
def test_a_numpy_column_that_holds_no_values_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    with pytest.raises(InvalidParameter, match=why):
        imported(tmp_path, {"id.npy": saved(np.arange(2)), "t.npy": content}, None)


def test_texts_in_two_dimensions_are_refused_by_their_row(tmp_path: Path) -> None:
    files = {"id.npy": saved(np.arange(2)), "tags.npy": saved(np.array([["a", "b"], ["c", "\ud800"]]))}
    with pytest.raises(InvalidParameter, match=r"tags\.npy, row 1: '\\ud800' is no text in UTF-8"):
        imported(tmp_path, files, None)
    files["tags.npy"] = saved(np.array([["a", "b"], ["c", "d"]]))
    assert [row["tags"] for row in imported(tmp_path, files, None)] == [["a", "b"], ["c", "d"]]


@pytest.mark.parametrize("end", [b"2,b\n", b"2,b", b"\n", b"\r\n2,b\r\n"])
def test_a_quote_in_csv_that_nothing_closes_takes_no_rows_into_its_value(tmp_path: Path, end: bytes) -> None:
    with pytest.raises(
        InvalidParameter, match=r"a\.csv cannot be read as CSV: nothing closes the quote .*'a"
    ):
        imported(tmp_path, {"a.csv": b'id,t\n1,"a\n' + end}, None)


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n\r\n", b"\n2,b\n"])
def test_a_value_in_quotes_has_several_lines_up_to_the_end_of_its_file(tmp_path: Path, end: bytes) -> None:
    rows = imported(tmp_path, {"a.csv": b'id,t\n1,"a\nb"' + end}, None)
    assert rows[0]["t"] == "a\nb"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"id,t\n1," + b"x" * (17 << 20) + b"\n", "has a row of more than 8388608 bytes.*JSON lines"),
        (b"n" * 140_000 + b",id" * 2**17 + b"\n", r"has no header that can be read \(field larger .*','"),
    ],
)
def test_csv_that_is_too_long_for_its_reader_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    with pytest.raises(InvalidParameter, match=rf"a\.csv {why}"):
        imported(tmp_path, {"a.csv": content}, None)
