"""Partial updates: which columns are needed, and the whole rows that come of them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.ids import FieldID
from elanus.core.partial_update import ArrayChange, array_changes, check_update, kept_fields, updated
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.structs import StructSchema

SCHEMA = CollectionSchema(
    "books",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "n", DataType.INT32, default_value=9),
        FieldSchema(FieldID(102), "s", DataType.VARCHAR, max_length=9, nullable=True),
        FieldSchema(
            FieldID(103), "tags", DataType.ARRAY, element_type=DataType.INT32, max_capacity=3, nullable=True
        ),
        FieldSchema(FieldID(104), "v", DataType.FLOAT_VECTOR, dim=2),
        FieldSchema(FieldID(106), "w", DataType.FLOAT_VECTOR, dim=2, nullable=True),
        FieldSchema(FieldID(105), "$meta", DataType.JSON, is_dynamic=True),
    ),
    enable_dynamic=True,
)
CLIPS = CollectionSchema(
    "films",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(102), "clips[tag]", DataType.ARRAY, element_type=DataType.INT64, max_capacity=9),
        FieldSchema(FieldID(103), "clips[len]", DataType.ARRAY, element_type=DataType.INT64, max_capacity=9),
    ),
    structs=(StructSchema(FieldID(101), "clips"),),
)
OLD = {
    "id": [2, 1],
    "n": [20, 10],
    "s": ["two", None],
    "tags": [[1, 2, 1], None],
    "v": [[2.0, 2.0], [1.0, 1.0]],
    "w": [[0.0, 2.0], None],
    "$meta": ['{"a":1,"b":[1]}', "{}"],
}
APPEND, REMOVE = ArrayChange.APPEND, ArrayChange.REMOVE


def batch(**columns: list[Any]) -> pa.RecordBatch:
    names = [field.name for field in SCHEMA.fields if field.name in columns]
    arrays = [pa.array(columns[n], SCHEMA.field(n).arrow_type) for n in names]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def update(changes: Mapping[str, ArrayChange] | None = None, **columns: list[Any]) -> dict[str, list[Any]]:
    sent, changes = batch(**columns), changes or {}
    check_update(SCHEMA, sent, changes)
    kept = ("id", *kept_fields(SCHEMA, sent, changes))
    found = {name: pa.array(OLD[name], SCHEMA.field(name).arrow_type) for name in kept}
    rows = updated(SCHEMA, sent, changes, found)
    assert rows.schema == SCHEMA.arrow_schema
    found_rows: dict[str, list[Any]] = rows.to_pydict()
    return found_rows


def test_columns_that_are_not_sent_keep_their_values() -> None:
    assert update(id=[1, 2], n=[11, 21]) == {
        "id": [1, 2],
        "n": [11, 21],
        "s": [None, "two"],
        "tags": [None, [1, 2, 1]],
        "v": [[1.0, 1.0], [2.0, 2.0]],
        "w": [None, [0.0, 2.0]],
        "$meta": ["{}", '{"a":1,"b":[1]}'],
    }


def test_a_null_that_is_sent_replaces_the_value() -> None:
    assert update(id=[2], s=[None])["s"] == [None]


def test_a_row_without_a_vector_stays_without_one() -> None:
    assert update(id=[1], n=[11])["w"] == [None]


def test_new_rows_get_defaults_and_nulls() -> None:
    rows = update(id=[5, 2], v=[[5.0, 5.0], [7.0, 7.0]])
    assert rows["n"] == [9, 20]
    assert rows["s"] == [None, "two"]
    assert rows["tags"] == [None, [1, 2, 1]]
    assert rows["v"] == [[5.0, 5.0], [7.0, 7.0]]
    assert rows["$meta"] == ["{}", '{"a":1,"b":[1]}']
    assert update(id=[5], v=[[5.0, 5.0]])["n"] == [9]


@pytest.mark.parametrize("ids", [[5], [5, 2]])
def test_a_new_row_needs_every_required_column(ids: list[int]) -> None:
    with pytest.raises(InvalidParameter, match=r"fieldSchema\(v\) has no corresponding fieldData pass in"):
        update(id=ids, n=[1] * len(ids))


def test_dynamic_keys_are_merged() -> None:
    rows = update(id=[2, 1], **{"$meta": ['{"b":{"c":2},"d":null}', '{"x":1}']})
    assert rows["$meta"] == ['{"a":1,"b":{"c":2},"d":null}', '{"x":1}']


def test_dynamic_keys_that_are_nested_too_deeply_to_be_merged_are_refused() -> None:
    """The stack of the insert that wrote them was lower."""
    deep = '{"a":' + "[" * 100_000 + "]" * 100_000 + "}"
    sent = batch(id=[1], **{"$meta": ['{"b":2}']})
    names = ("id", *kept_fields(SCHEMA, sent, {}))
    found = {name: pa.array(OLD[name][1:], SCHEMA.field(name).arrow_type) for name in names}
    found["$meta"] = pa.array([deep])
    with pytest.raises(InvalidParameter, match=r"keys of row 0 cannot be merged .* nested too deeply"):
        updated(SCHEMA, sent, {}, found)


def test_a_merged_dynamic_row_is_as_long_as_one_that_is_inserted_at_most() -> None:
    with pytest.raises(InvalidParameter, match=r"json field \(\$meta\) exceeds max length \(65536\)"):
        update(id=[2], **{"$meta": ['{"c":"%s"}' % ("x" * 65_520)]})  # with "a" and "b" it is too long
    assert len(update(id=[2], **{"$meta": ['{"c":"%s"}' % ("x" * 65_500)]})["$meta"][0]) > 65_500


@pytest.mark.parametrize(
    ("sent", "changes", "clips"),
    [
        ({"tag": [7, 8]}, {}, None),
        ({"tag": [7]}, {}, ([7], [10])),
        ({"tag": [7, 8], "len": [1, 2]}, {}, ([7, 8], [1, 2])),
        ({"tag": [7]}, {"tag": APPEND}, None),
        ({"tag": [7], "len": [1]}, {"tag": APPEND}, None),
        ({"tag": [7], "len": [1]}, {"tag": APPEND, "len": APPEND}, ([5, 7], [10, 1])),
        ({"tag": [5]}, {"tag": REMOVE}, None),
        ({"tag": [5], "len": []}, {"tag": REMOVE}, ([], [])),
    ],
)
def test_the_arrays_of_a_struct_array_keep_one_length(
    sent: dict[str, list[int]], changes: dict[str, ArrayChange], clips: tuple[list[int], list[int]] | None
) -> None:
    names = [f"clips[{name}]" for name in sent]
    rows = pa.RecordBatch.from_arrays(
        [pa.array([1], pa.int64()), *(pa.array([array], pa.list_(pa.int64())) for array in sent.values())],
        names=["id", *names],
    )
    kinds = {f"clips[{name}]": change for name, change in changes.items()}
    old = {"id": [1], "clips[tag]": [[5]], "clips[len]": [[10]]}
    kept = ("id", *kept_fields(CLIPS, rows, kinds))
    found = {name: pa.array(old[name], CLIPS.field(name).arrow_type) for name in kept}
    if clips is None:
        with pytest.raises(InvalidParameter, match="inconsistent array length in struct array field clips"):
            updated(CLIPS, rows, kinds, found)
    else:
        whole = updated(CLIPS, rows, kinds, found).to_pydict()
        assert whole == {"id": [1], "clips[tag]": [clips[0]], "clips[len]": [clips[1]]}


def test_arrays_are_extended() -> None:
    assert update({"tags": APPEND}, id=[1], tags=[[7, 8]])["tags"] == [[7, 8]]
    assert update({"tags": APPEND}, id=[2], tags=[[]])["tags"] == [[1, 2, 1]]
    assert update({"tags": APPEND}, id=[2], tags=[None])["tags"] == [[1, 2, 1]]
    assert update({"tags": APPEND}, id=[5], tags=[[3]], v=[[0.0, 0.0]])["tags"] == [[3]]
    with pytest.raises(InvalidParameter, match=r"max capacity \(3\) after ARRAY_APPEND: array length 4 exc"):
        update({"tags": APPEND}, id=[2], tags=[[3]])


def test_elements_are_removed_wherever_they_are() -> None:
    assert update({"tags": REMOVE}, id=[2, 1], tags=[[1, 9], [1]])["tags"] == [[2], None]


def test_removing_costs_the_sum_of_both_arrays_and_keeps_what_equals_nothing() -> None:
    key = FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True)
    kind = {"data_type": DataType.ARRAY, "element_type": DataType.DOUBLE, "max_capacity": 30_000}
    schema = CollectionSchema("sets", (key, FieldSchema(FieldID(101), "x", **kind)))
    floats = schema.field("x").arrow_type

    def left(before: list[float], gone: list[float]) -> list[float]:
        ids = pa.array([1], pa.int64())
        sent = pa.RecordBatch.from_arrays([ids, pa.array([gone], floats)], names=["id", "x"])
        rows = updated(schema, sent, {"x": REMOVE}, {"id": ids, "x": pa.array([before], floats)})
        kept: list[float] = rows.column("x")[0].as_py()
        return kept

    began = time.process_time()
    assert left([float(n) for n in range(30_000)], [float(-n) for n in range(1, 30_001)])[-1] == 29_999
    assert time.process_time() - began < 3, "pairs were compared"
    assert str(left([math.nan, 0.0, 1.5], [math.nan, -0.0])) == "[nan, 1.5]"


def test_operations_are_read_by_name() -> None:
    sent = [("tags", "ARRAY_APPEND"), ("n", "REPLACE"), ("other", "ARRAY_REMOVE")]
    assert array_changes(sent) == {"tags": APPEND, "other": REMOVE}
    for bad, text in {
        ("tags", "EXTEND"): "unsupported partial update op: EXTEND",
        ("", "REPLACE"): "FieldPartialUpdateOp.field_name is required",
        ("n", "ARRAY_REMOVE"): 'duplicate partial-update op for field "n"',
    }.items():
        with pytest.raises(InvalidParameter, match=text):
            array_changes([*sent, bad])


@pytest.mark.parametrize(
    ("changes", "columns", "text"),
    [
        ({}, {"n": [1]}, "must assign pk when upsert, primary field: id"),
        ({}, {"id": [1, 1], "n": [1, 2]}, "duplicate primary keys are not allowed in the same batch"),
        ({"x": APPEND}, {"id": [1]}, 'field "x" not found in collection schema'),
        ({"id": APPEND}, {"id": [1]}, 'field "id" is the primary key and cannot carry a partial-update op'),
        (
            {"n": APPEND},
            {"id": [1], "n": [1]},
            'op ARRAY_APPEND requires Array field, but field "n" is Int32',
        ),
        ({"tags": REMOVE}, {"id": [1]}, 'partial-update op targets field "tags" not present in fields_data'),
        (
            {"tags": APPEND},
            {"id": [1, 2], "tags": [None, [1, 2, 3, 4]]},
            'ARRAY_APPEND payload for field "tags" row 1 has length 4 exceeding max_capacity 3',
        ),
    ],
)
def test_what_makes_no_sense(
    changes: Mapping[str, ArrayChange], columns: dict[str, list[Any]], text: str
) -> None:
    with pytest.raises(InvalidParameter, match=text):
        update(changes, **columns)
