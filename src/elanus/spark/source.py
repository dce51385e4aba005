"""``spark.read.format("elanus")``: a collection as of one moment, one Spark partition per segment.

Writes are in `elanus.spark.sink`.

`load` takes the snapshot: Spark asks for the schema then, and every action on the DataFrame reads the same
rows, whatever is written, compacted or dropped meanwhile, until the lease ends. Spark plans in short-lived
Python processes, so what is kept is small: where the snapshot's object is.

Filters are not pushed down (`DataSourceReader.pushFilters`): Spark 4.3 keeps what a query pushed with the
frame, and applies it to the frame's next query too, which then misses rows. The option ``filter`` does it by
hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession, datasource
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from elanus.api.connector import SnapshotLease
from elanus.core import schema as elanus_schema
from elanus.core.errors import ElanusError, InvalidParameter, NotSupported
from elanus.core.imports import WriteMode
from elanus.core.nullable import spread, valid_rows
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.sparse import SparseRows
from elanus.core.vector_lists import VectorLists
from elanus.expr import compile_filter
from elanus.spark import tables
from elanus.spark.asking import ask
from elanus.spark.change_source import OWN, ElanusChangeReader, ElanusStreamReader, RefusedStream
from elanus.spark.changes import let_go, let_go_on_error, take_changes
from elanus.spark.options import ReadOptions, parse_options, parse_write_options
from elanus.spark.plain_errors import plain_errors
from elanus.spark.releases import arrow_schema, require, require_change_streams
from elanus.spark.segment import SegmentRead, may_match, read_segment
from elanus.spark.sink import ElanusWriter
from elanus.spark.snapshot import snapshot_of, store_url
from elanus.storage.objects import open_store
from elanus.storage.port import ObjectMissing

if TYPE_CHECKING:
    from elanus.spark.stream_sink import ElanusStreamWriter

_BATCHES = "write the batches by foreachBatch, with the option write_id"

TYPES: Mapping[elanus_schema.DataType, DataType | Callable[[FieldSchema], DataType]] = {
    elanus_schema.DataType.BOOL: BooleanType(),
    elanus_schema.DataType.INT8: ByteType(),
    elanus_schema.DataType.INT16: ShortType(),
    elanus_schema.DataType.INT32: IntegerType(),
    elanus_schema.DataType.INT64: LongType(),
    elanus_schema.DataType.FLOAT: FloatType(),
    elanus_schema.DataType.DOUBLE: DoubleType(),
    elanus_schema.DataType.VARCHAR: StringType(),
    elanus_schema.DataType.GEOMETRY: BinaryType(),
    elanus_schema.DataType.TIMESTAMPTZ: TimestampType(),
    elanus_schema.DataType.TEXT: StringType(),
    elanus_schema.DataType.JSON: StringType(),
    elanus_schema.DataType.ARRAY: lambda field: ArrayType(_spark_type(field.element), containsNull=False),
    elanus_schema.DataType.ARRAY_OF_VECTOR: lambda field: ArrayType(
        _spark_type(field.element), containsNull=False
    ),
    elanus_schema.DataType.FLOAT_VECTOR: ArrayType(FloatType(), containsNull=False),
    elanus_schema.DataType.BINARY_VECTOR: BinaryType(),
    elanus_schema.DataType.FLOAT16_VECTOR: ArrayType(FloatType(), containsNull=False),
    elanus_schema.DataType.BFLOAT16_VECTOR: ArrayType(FloatType(), containsNull=False),
    elanus_schema.DataType.SPARSE_FLOAT_VECTOR: StructType(
        [
            StructField("indices", ArrayType(LongType(), containsNull=False), nullable=False),
            StructField("values", ArrayType(FloatType(), containsNull=False), nullable=False),
        ]
    ),
    elanus_schema.DataType.INT8_VECTOR: ArrayType(FloatType(), containsNull=False),
}
"""The Spark type of each data type, or of a field: the same keys as `elanus.core.types.KINDS`."""


def register(spark: SparkSession, **defaults: str) -> None:
    """Make the format known to a session. ``defaults``: options of all its reads and writes.

    Raises `NotSupported` for defaults if Spark keeps the format that it found by itself (`pyspark_elanus`),
    as Spark 4.0 does.
    """
    source = type("ElanusSource", (ElanusSource,), {"defaults": defaults}) if defaults else ElanusSource
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        if defaults:
            raise NotSupported(
                f"this Spark keeps the format as it found it, without {', '.join(sorted(defaults))}: "
                "give the options to each read and write"
            ) from error


class ElanusSource(DataSource):
    """The format ``elanus``. Made by Spark."""

    defaults: Mapping[str, str] = {}

    @classmethod
    def name(cls) -> str:
        return "elanus"

    @plain_errors()
    def schema(self) -> StructType:
        """Take the snapshot, and return its columns. Raises the server's errors."""
        given, creates_table = self._given(), tables.creates_table(self.options)
        options = parse_options(tables.for_reads(given) if creates_table else given)
        self.lease = _take_snapshot(options)
        with let_go_on_error(options, self.lease):
            collection = snapshot_of(options, self.lease).schema
            compile_filter(options.filter, collection)  # a wrong filter fails here, not in a task
            if options.changes_from is not None:
                return _change_schema(collection, options.columns)
            found = spark_schema(collection, options.columns)
            if not creates_table:
                return found
            generated = {f.name for f in collection.fields if f.auto_id or f.is_function_output}
            optional = {f.name for f in collection.fields if f.is_dynamic or f.default_value is not None}
            key = collection.primary_field.name
            found = tables.with_table_options(
                found, tables.options_given(self.options), generated, optional, key
            )
        let_go(options, self.lease)  # each query of the table reads a version of its own
        return found

    @plain_errors()
    def reader(self, schema: StructType) -> ElanusReader | ElanusChangeReader:
        kept = None if tables.made_of_query(schema) else tables.table_options(schema)
        lease = getattr(self, "lease", None)
        if lease is not None:
            options = parse_options(self._given())
        elif kept is not None:
            options = parse_options(tables.for_reads(self._given(kept)))
            if options.changes_from is not None:
                raise InvalidParameter("changes have columns of their own: read them by spark.read")
            lease = _take_snapshot(options)
            with let_go_on_error(options, lease):
                _check_columns(snapshot_of(options, lease).schema, options, schema)
        else:
            raise InvalidParameter(
                "a collection defines its columns itself: give .option('columns'), not .schema(). A table "
                "that a query has made (AS SELECT, saveAsTable), or one with a list of columns, does not "
                "know its collection, which has the rows: drop the table, and make it by create table ... "
                "using elanus options (collection '...')"
            )
        if options.changes_from is not None:
            return ElanusChangeReader(options, lease, schema)
        return ElanusReader(options, lease, schema)

    def streamReader(self, schema: StructType) -> ElanusStreamReader | RefusedStream:  # noqa: N802
        try:
            require_change_streams()
            options = parse_options(self._given())
            stream = ElanusStreamReader(options, schema)
            if (lease := getattr(self, "lease", None)) is not None:
                let_go(options, lease)  # its columns were needed: each batch has a version of its own
            return stream
        except ElanusError as error:
            return RefusedStream(error)

    @plain_errors()
    def writer(self, schema: StructType, overwrite: bool) -> ElanusWriter:
        if "collection" in tables.options_given(self.options):  # of an INSERT into a table, the table has it
            schema = tables.columns_of_frame(schema)
        kept = tables.table_options(schema)
        given = self._given() if kept is None else tables.for_writes(self._given(kept))
        if kept is not None:
            tables.check_certain(schema)
        options = parse_write_options(given)
        if not overwrite:
            return ElanusWriter(options, schema)
        if options.operation is not WriteMode.APPEND or not options.partition:
            raise InvalidParameter(
                "the mode overwrite replaces the rows of one partition: name it in the option partition "
                "(_default for the default one), and give no operation"
            )
        return ElanusWriter(replace(options, operation=WriteMode.OVERWRITE), schema)

    @plain_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> ElanusStreamWriter:  # noqa: N802
        if overwrite:
            raise NotSupported(
                "the output mode complete is not supported: use update, with the option operation=upsert"
            )
        require("4.1", "writing a stream", hasattr(datasource, "DataSourceStreamArrowWriter"), _BATCHES)
        from elanus.spark.stream_sink import ElanusStreamWriter

        return ElanusStreamWriter(parse_write_options(self._given()), schema)

    def _given(self, of_table: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the options: those of the statement come first, then the table's, then the session's."""
        return {**self.defaults, **(of_table or {}), **tables.options_given(self.options)}


class SegmentPartition(InputPartition):
    """One segment of the snapshot."""

    def __init__(self, read: SegmentRead) -> None:
        super().__init__(read)


class ElanusReader(DataSourceReader):
    """Plans in the driver, reads in tasks: it travels to them."""

    def __init__(self, options: ReadOptions, lease: SnapshotLease, schema: StructType) -> None:
        self._options = options
        self._lease = lease
        self._schema = schema

    @plain_errors()
    def partitions(self) -> list[InputPartition]:
        snapshot = snapshot_of(self._options, self._lease)
        chosen = compile_filter(self._options.filter, snapshot.schema)
        return [
            SegmentPartition(
                SegmentRead(
                    store_url=store_url(self._options, self._lease),
                    schema=snapshot.schema,
                    manifest=manifest,
                    delta_logs=snapshot.delta_logs.get(manifest.vchannel, ()),
                    read_ts=snapshot.read_ts,
                    columns=tuple(self._schema.fieldNames()),
                    filter=self._options.filter,
                    expired_until=snapshot.expired_until,
                )
            )
            for manifest in snapshot.segments
            if may_match(manifest, chosen, snapshot.schema)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task. An empty snapshot has one partition of Spark's own making."""
        read = partition.value
        if read is None:
            return
        target = arrow_schema(self._schema)
        with plain_errors():
            try:
                for batch in read_segment(read, open_store(read.store_url)):
                    yield as_spark(batch, read.schema, target)
            except ObjectMissing as error:
                raise InvalidParameter(
                    f"{error} is gone from {read.store_url}: the snapshot's lease has ended; load the "
                    "collection again, with a larger lease_s"
                ) from error


def spark_schema(collection: CollectionSchema, columns: tuple[str, ...] = ()) -> StructType:
    """Return the collection's fields, or those named, as Spark sees them. Raises `FieldNotFound`."""
    fields = [collection.field(name) for name in columns] or list(collection.fields)
    return StructType([StructField(f.name, _spark_type(f), f.nullable) for f in fields])


def _change_schema(collection: CollectionSchema, columns: tuple[str, ...]) -> StructType:
    """Return the columns of changes: the key, the named fields (all if none is), and those of a change."""
    key = collection.primary_field
    columns = columns or tuple(f.name for f in collection.fields if collection.returns(f))
    fields = spark_schema(collection, columns if key.name in columns else (key.name, *columns)).fields
    # A delete has its key only.
    nullable = [StructField(f.name, f.dataType, f.name != key.name) for f in fields]
    return StructType([*nullable, *OWN])


def _spark_type(field: FieldSchema) -> DataType:
    found = TYPES[field.data_type]
    return found if isinstance(found, DataType) else found(field)


def as_spark(batch: pa.RecordBatch, collection: CollectionSchema, target: pa.Schema) -> pa.RecordBatch:
    """Return a batch in the Arrow types that Spark exchanges: vectors of floats as lists of variable
    length."""
    columns = [
        _as_type(batch.column(n), collection.field(field.name), field.type)
        if field.name in collection.by_name
        else batch.column(n).cast(field.type)
        for n, field in enumerate(target)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _vector_lists(column: pa.Array, field: FieldSchema, target: pa.DataType) -> pa.Array:
    """Lists of vectors as lists of what a vector is."""
    lists = VectorLists.from_column(field.vector, field.dim, column)
    vectors = _as_type(field.vector.to_column(lists.vectors), field.element, target.value_type)
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(pa.array(lists.offsets.astype(np.int32)), vectors, target, mask=mask)


def _as_type(column: pa.Array, field: FieldSchema, target: pa.DataType) -> pa.Array:
    if column.null_count == len(column):
        return pa.nulls(len(column), target)
    if field.has_vector_lists:
        return _vector_lists(column, field, target)
    valid = valid_rows(column) if field.kind.vector is not None else None
    if valid is not None:
        return spread(_as_type(column.drop_null(), field, target), valid)
    if pa.types.is_struct(target):
        return _sparse(SparseRows.from_column(column), target)
    if field.kind.vector is None or not pa.types.is_list(target):
        return column.cast(target)
    form = field.vector
    values = form.compared(form.to_values(column))
    offsets = pa.array(np.arange(len(column) + 1, dtype=np.int32) * np.int32(form.width(field.dim)))
    return pa.ListArray.from_arrays(offsets, pa.array(values), type=target)


def _sparse(rows: SparseRows, target: pa.DataType) -> pa.Array:
    """Sparse vectors as structs of two lists of one length."""
    starts = pa.array(rows.starts.astype(np.int32))
    numbers = (rows.indices.astype(np.int64), np.ascontiguousarray(rows.values))
    lists = [
        pa.ListArray.from_arrays(starts, pa.array(values), type=target.field(n).type)
        for n, values in enumerate(numbers)
    ]
    return pa.StructArray.from_arrays(lists, fields=list(target))


def _check_columns(collection: CollectionSchema, options: ReadOptions, columns: StructType) -> None:
    """Raise `InvalidParameter` if a table's columns are not those of the collection, or if the options name
    others. Nullability counts in one direction: what was null may no longer be."""
    if options.columns and list(options.columns) != columns.fieldNames():
        raise InvalidParameter("the columns of a table are fixed: select some, or create another table")
    check_fields(collection, columns.fields, "create the table again")


def check_fields(collection: CollectionSchema, columns: Sequence[StructField], remedy: str) -> None:
    """Raise `InvalidParameter` if the collection no longer has a field for each of these columns."""
    for column in columns:
        field = collection.by_name.get(column.name)
        if field is None or _spark_type(field) != column.dataType:
            raise InvalidParameter(
                f"collection {collection.name} has changed: it has no field {column.name} of the type "
                f"{column.dataType.simpleString()} any more; {remedy}"
            )


def _take_snapshot(options: ReadOptions) -> SnapshotLease:
    if options.changes_from is not None:
        return take_changes(options, options.changes_from)
    of = options
    return ask(of, lambda server: server.snapshot(of.database, of.collection, of.partitions, of.lease_ms))
