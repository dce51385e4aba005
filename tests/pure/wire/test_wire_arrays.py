"""Array fields from client to client: the wire, the log, growing and sealed segments, Spark, imports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf.message import Message
from insert_log_files import write_insert_log
from pyspark.sql.pandas.types import to_arrow_schema
from wire_messages import field, schema

from elanus.api.querynode import LoadSegment
from elanus.core.catalog import Checkpoint
from elanus.core.errors import InvalidParameter
from elanus.core.given_types import check_columns
from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.messages import InsertMessage
from elanus.core.schema import CollectionSchema, DataType
from elanus.core.segments import SegmentManifest
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, Timestamp
from elanus.expr import compile_filter
from elanus.log.codec import decode, encode
from elanus.log.port import LogEntry, Position
from elanus.pipeline.import_columns import Place, convert
from elanus.proxy.wire.results import encode_column
from elanus.proxy.wire.rows import decode_rows
from elanus.proxy.wire.schemas import decode_schema, encode_schema
from elanus.proxy.wire.stubs import schema_pb2
from elanus.querynode.delta_logs import DeltaLogs
from elanus.querynode.growing import GrowingSegment, NewRows
from elanus.querynode.sealed import load_sealed
from elanus.spark.segment import SegmentRead, read_segment
from elanus.spark.source import as_spark, spark_schema
from elanus.storage.binlog import SegmentKey, insert_log_schema, with_system_columns
from elanus.storage.objects import open_store

Rows = list[list[Any] | None]

CASES: dict[DataType, tuple[str, Rows]] = {
    DataType.BOOL: ("bool_data", [[True, False], None, [], [False]]),
    DataType.INT8: ("int_data", [[-128, 127], None, [], [0]]),
    DataType.INT16: ("int_data", [[-(2**15), 2**15 - 1], None, [], [0]]),
    DataType.INT32: ("int_data", [[-(2**31), 2**31 - 1], None, [], [0]]),
    DataType.INT64: ("long_data", [[-(2**63), 2**63 - 1], None, [], [0]]),
    DataType.FLOAT: ("float_data", [[-0.5, 2.0**100], None, [], [0.0]]),
    DataType.DOUBLE: ("double_data", [[0.1, 1e300], None, [], [0.0]]),
    DataType.VARCHAR: ("string_data", [["é 漢", "b"], None, [], [""]]),
}
KEY = SegmentKey(CollectionID(1), PartitionID(2), SegmentID(3), "c_1v0")
each_type = pytest.mark.parametrize("element_type", CASES)


def tagged(element_type: DataType, *, nullable: bool = True) -> CollectionSchema:
    max_length = 6 if element_type is DataType.VARCHAR else 0
    options = {"element_type": element_type, "max_capacity": 2, "max_length": max_length}
    return schema(
        field("x", DataType.ARRAY, nullable=nullable, **options),
        field("v", DataType.FLOAT_VECTOR, dim=2),
    )


def array_data(member: str, rows: Rows, *, expanded: bool = False, flags: bool = True) -> Message:
    """A column as clients send it: compact, or with an empty message in place of each null."""
    data = schema_pb2.FieldData(field_name="x", type=schema_pb2.Array)
    if flags:
        data.valid_data.extend(row is not None for row in rows)
    for row in rows:
        if row is not None:
            getattr(data.scalars.array_data.data.add(), member).data.extend(row)
        elif expanded:
            data.scalars.array_data.data.add()
    return data


def decoded(of: CollectionSchema, column: Message, rows: int) -> pa.RecordBatch:
    keys = schema_pb2.FieldData(field_name="id", type=schema_pb2.Int64)
    keys.scalars.long_data.data.extend(range(rows))
    vectors = schema_pb2.FieldData(field_name="v", type=schema_pb2.FloatVector)
    vectors.vectors.dim = 2
    vectors.vectors.float_vector.data.extend([0.5] * 2 * rows)
    return decode_rows(of, [keys, column, vectors], rows, with_auto_key=False)


def through_the_log(rows: pa.RecordBatch) -> pa.RecordBatch:
    ids = KEY.collection_id, KEY.partition_id, KEY.segment_id
    new = encode(InsertMessage(Timestamp(5), KEY.vchannel, *ids, 0, rows))
    data = b"".join(new.payload)
    message = decode(LogEntry(Position(0), Position(8), new.header, memoryview(data), len(data)))
    assert isinstance(message, InsertMessage)
    return message.rows


@each_type
@pytest.mark.parametrize("expanded", [False, True])
def test_an_insert_comes_back_as_it_was(element_type: DataType, expanded: bool) -> None:
    of, (member, rows) = tagged(element_type), CASES[element_type]
    batch = decoded(of, array_data(member, rows, expanded=expanded), len(rows))
    assert batch.schema == of.arrow_schema
    assert batch.column("x").to_pylist() == rows
    for start in range(len(rows) + 1):
        answer = schema_pb2.FieldData()
        encode_column(answer, "x", of.field("x"), batch.column("x").slice(start))
        cells = [list(getattr(cell, member).data) for cell in answer.scalars.array_data.data]
        assert cells == [row or [] for row in rows[start:]]
        assert all(cell.WhichOneof("data") == member for cell in answer.scalars.array_data.data)
        assert answer.scalars.array_data.element_type == element_type
        valid = [row is not None for row in rows[start:]]
        assert list(answer.valid_data) == ([] if all(valid) else valid)


def test_a_field_is_described_as_it_was_declared() -> None:
    for element_type in CASES:
        of = tagged(element_type)
        message = encode_schema(of)
        assert message.fields[1].element_type == element_type
        again = decode_schema(message.SerializeToString(), "books").field("x")
        assert (again.element_type, again.max_capacity) == (element_type, 2)
        assert again.max_length == of.field("x").max_length
        assert again.params == {}


@pytest.mark.parametrize(
    ("element_type", "member", "rows", "text"),
    [
        (DataType.INT64, "long_data", [[1], [1, 2, 3]],
         "the length (3) of 1th array exceeds max capacity (2)[expected=valid length array]"),
        (DataType.INT8, "int_data", [[], [0, 300]],
         "the 1th element (300) out of range: [-128, 127], field x, row 1"),
        (DataType.VARCHAR, "string_data", [["a", "1234567"]],
         "the length (7) of 1th string exceeds max length (6)"),
        (DataType.INT64, "int_data", [[1]], "insert data does not match"),
        (DataType.BOOL, "string_data", [["a"]], "[expected=bool_data array][actual=string_data array]"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_the_references_words(
    element_type: DataType, member: str, rows: Rows, text: str
) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        decoded(tagged(element_type), array_data(member, rows), len(rows))
    assert text in refusal.value.message


def test_nulls_where_none_are_allowed_and_rows_of_no_type_are_refused() -> None:
    of = tagged(DataType.INT64, nullable=False)
    with pytest.raises(InvalidParameter, match="null in row 1"):
        decoded(of, array_data("long_data", [[1], None]), 2)
    with pytest.raises(InvalidParameter, match=r"insert data does not match.*\[actual=nil array\]"):
        decoded(of, array_data("long_data", [[1], None], expanded=True, flags=False), 2)
    with pytest.raises(InvalidParameter, match=r"num_rows \(1\) of field \(x\)"):
        decoded(of, array_data("long_data", [[1]], flags=False), 2)


@each_type
def test_growing_sealed_and_spark_reads_agree(element_type: DataType, tmp_path: Path) -> None:
    of, (member, values) = tagged(element_type), CASES[element_type]
    rows = through_the_log(decoded(of, array_data(member, values), len(values)))
    chosen = compile_filter("array_length(x) > 1 or array_length(x) == 0 or x is null", of)
    found = [0, 1, 2]

    growing = GrowingSegment(KEY.segment_id, KEY.partition_id, of, {})
    growing.append([NewRows(rows, np.full(len(values), 5, np.uint64))])
    (block,) = growing.blocks
    assert block.select(MAX_TIMESTAMP, chosen).count == len(found)
    assert block.take("x", np.array([3, 0, 1])).to_pylist() == [values[3], values[0], None]

    store = open_store(f"file://{tmp_path / 'objects'}")
    batch = with_system_columns(rows, 0, Timestamp(5), insert_log_schema(of, KEY))
    file = write_insert_log(store, "insert_log/a", of, KEY, [batch], tmp_path)
    manifest = SegmentManifest(
        KEY.segment_id, KEY.collection_id, KEY.partition_id, KEY.vchannel, (file,), (), NO_TIMESTAMP
    )
    load = LoadSegment(KEY.collection_id, manifest, (), (), Checkpoint(NO_TIMESTAMP, 0, NO_TIMESTAMP, 0))
    (sealed,) = load_sealed(load, of, {}, store, DeltaLogs(store, 1), tmp_path).blocks
    assert sealed.select(MAX_TIMESTAMP, chosen).count == len(found)
    taken = sealed.take("x", np.array([3, 0, 1]))
    assert taken.to_pylist() == [values[3], values[0], None]
    assert taken.type == of.field("x").arrow_type

    read = SegmentRead(store.url, of, manifest, (), Timestamp(9), ("id", "x"), chosen.text)
    target = to_arrow_schema(spark_schema(of, ("id", "x")), timezone="UTC")
    table = pa.Table.from_batches([as_spark(b, of, target) for b in read_segment(read, store)])
    assert table.column("x").to_pylist() == [values[row] for row in found]


@each_type
def test_parquet_lists_are_imported(element_type: DataType, tmp_path: Path) -> None:
    of, (_, values) = tagged(element_type), CASES[element_type]
    elements = of.field("x").element.arrow_type
    wider = {DataType.INT8: pa.int64(), DataType.VARCHAR: pa.large_string()}.get(element_type, elements)
    for list_type in (pa.list_(elements), pa.large_list(wider)):
        columns = {
            "id": pa.array(range(len(values))),
            "x": pa.array(values, list_type),
            "v": pa.array([[0.5, 1.0]] * len(values), pa.list_(pa.float32())),
        }
        path = tmp_path / "rows.parquet"
        pq.write_table(pa.table(columns), path)
        given = pq.read_table(path).combine_chunks().to_batches()[0]
        check_columns(of, given.schema, "rows.parquet")
        found = convert(of, given, None, Place("rows.parquet", 0, 0))
        assert found.schema == of.arrow_schema
        assert found.column("x").to_pylist() == values


@pytest.mark.parametrize(
    ("element_type", "values", "text"),
    [
        (DataType.INT8, [[1], [1, 2, 3]], "row 1: field x has 3 elements, its max_capacity is 2"),
        (DataType.INT8, [[], [1, 300]],
         "row 1: field x cannot hold 300 at position 1: its elements have type INT8"),
        (DataType.VARCHAR, [["ab", "1234567"]],
         "row 0: field x has 7 bytes at position 1, its max_length is 6"),
        (DataType.INT64, [[1, None]], "row 0: field x holds a null at position 1"),
    ],
)  # fmt: skip
def test_an_import_names_the_row_and_the_element(
    element_type: DataType, values: list[Any], text: str
) -> None:
    of = tagged(element_type)
    given = pa.record_batch(
        {
            "id": pa.array(range(len(values))),
            "x": pa.array(values),
            "v": pa.array([[0.5, 1.0]] * len(values), pa.list_(pa.float32())),
        }
    )
    check_columns(of, given.schema, "rows.parquet")
    with pytest.raises(InvalidParameter) as refusal:
        convert(of, given, None, Place("rows.parquet", 0, 0))
    assert text in refusal.value.message


def test_columns_of_other_elements_and_empty_ones() -> None:
    of = tagged(DataType.INT64)
    rest = {"id": pa.array([0, 1]), "v": pa.array([[0.5, 1.0]] * 2, pa.list_(pa.float32()))}
    for wrong in (pa.array([["a"], ["b"]]), pa.array([1, 2]), pa.array([[0.5], []])):
        with pytest.raises(InvalidParameter, match=r"does not fit field x of type ARRAY of INT64"):
            check_columns(of, pa.record_batch({**rest, "x": wrong}).schema, "rows.parquet")
    for nothing, expected in ((pa.array([[], []]), [[], []]), (pa.nulls(2), [None, None])):
        batch = pa.record_batch({**rest, "x": nothing})
        check_columns(of, batch.schema, "rows.parquet")
        assert convert(of, batch, None, Place("rows.parquet", 0, 0)).column("x").to_pylist() == expected
