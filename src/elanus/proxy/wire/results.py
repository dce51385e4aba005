"""Read results to ``SearchResults`` and ``QueryResults``, column by column.

For dynamic rows a ``$meta`` column is sent, flagged as dynamic, with the keys that the request named, or
with all of them when it named the column: not every client picks its keys itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

from elanus.core.aggregation import field_of_column
from elanus.core.geometry import texts_of
from elanus.core.moments import IN_UTC, TimeFormat
from elanus.core.pieces import pieces
from elanus.core.reduce import PrimaryKeys
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.shown_keys import with_shown_keys
from elanus.proxy.api.query import QueryResult
from elanus.proxy.api.search import SearchResult
from elanus.proxy.wire.buckets import add_buckets
from elanus.proxy.wire.codecs import CODECS, ArrayCodec, ScalarCodec, VectorListCodec, packed_floats
from elanus.proxy.wire.highlights import add_highlights
from elanus.proxy.wire.structs import add_structs
from elanus.proxy.wire.stubs import milvus_pb2, schema_pb2

_SCORES_NUMBER: int = schema_pb2.SearchResultData.DESCRIPTOR.fields_by_name["scores"].number


_COMPUTED: Mapping[pa.DataType, DataType] = {
    pa.bool_(): DataType.BOOL,
    pa.int8(): DataType.INT8,
    pa.int16(): DataType.INT16,
    pa.int32(): DataType.INT32,
    pa.int64(): DataType.INT64,
    pa.float32(): DataType.FLOAT,
    pa.float64(): DataType.DOUBLE,
    pa.string(): DataType.VARCHAR,
}
"""The wire's types of computed columns."""


def encode_search(
    result: SearchResult, collection: str, times: TimeFormat = IN_UTC
) -> milvus_pb2.SearchResults:
    """Return a ``SearchResults`` message. ``collection`` is the name that the client used."""
    response = milvus_pb2.SearchResults(collection_name=collection, session_ts=result.ts)
    data = response.results
    hits = [stop - start for start, stop in pairwise(result.offsets.tolist())]
    data.num_queries = len(hits)
    if result.buckets is not None:
        data.primary_field_name = result.schema.primary_field.name
        data.output_fields.extend(result.output_fields)
        add_buckets(data, result, times)
        data.topks.extend([0] * len(hits))
        add_ids(data.ids, result.ids[:0])
        return response
    data.top_k = max(hits, default=0)
    data.topks.extend(hits)
    data.MergeFromString(packed_floats(_SCORES_NUMBER, result.scores))
    add_ids(data.ids, result.ids)
    data.primary_field_name = result.schema.primary_field.name
    if result.elements is not None:
        data.element_indices.data.extend(result.elements.tolist())
    if result.fields:
        columns = with_shown_keys(result.fields, result.schema, result.dynamic_fields)
        _add_columns(data.fields_data, columns, result.schema, times)
    data.output_fields.extend(result.output_fields)
    data.recalls.extend(result.recalls)
    _add_groups(data, result, times)
    add_highlights(data, result)
    if result.page_end is not None:
        data.search_iterator_v2_results.token = result.page_end.token
        data.search_iterator_v2_results.last_bound = result.page_end.bound
    return response


def encode_query(result: QueryResult, collection: str, times: TimeFormat = IN_UTC) -> milvus_pb2.QueryResults:
    """Return a ``QueryResults`` message. ``collection`` is the name that the client used."""
    response = milvus_pb2.QueryResults(
        collection_name=collection,
        session_ts=result.ts,
        primary_field_name=result.schema.primary_field.name,
        output_fields=result.output_fields,
    )
    columns = with_shown_keys(result.fields, result.schema, result.dynamic_fields)
    _add_columns(response.fields_data, columns, result.schema, times)
    for places in () if result.elements is None else result.elements.to_pylist():
        response.element_indices.add().indices.data.extend(places)
    return response


def in_words(field: FieldSchema, column: pa.Array, times: TimeFormat) -> pa.Array:
    """Return moments as texts or lists of their parts, geometries as texts, and any other column as it is."""
    if field.data_type is DataType.TIMESTAMPTZ:
        return times.lists(column) if times.parts else times.texts(column)
    return texts_of(column) if field.data_type is DataType.GEOMETRY else column


def encode_column(
    message: schema_pb2.FieldData,
    name: str,
    field: FieldSchema | None,
    column: pa.Array,
    times: TimeFormat = IN_UTC,
) -> None:
    """Fill a ``FieldData`` message. ``field`` is ``None`` for a computed column, such as an aggregate."""
    if field is not None:
        column = in_words(field, column, times)
        if field.data_type is DataType.TIMESTAMPTZ and times.parts:
            field = replace(field, data_type=DataType.ARRAY, element_type=DataType.INT64)
    data_type = _COMPUTED[column.type] if field is None else field.data_type
    message.type = schema_pb2.DataType.ValueType(data_type)
    message.field_name = name
    if field is not None:
        message.field_id = field.field_id
        message.is_dynamic = field.is_dynamic
    codec = CODECS[data_type]
    if isinstance(codec, ScalarCodec):
        _add_scalars(message, codec, column)
        return
    assert field is not None
    if isinstance(codec, ArrayCodec):
        if column.null_count:
            message.valid_data.extend(column.is_valid().to_pylist())
        codec.encode(field, message.scalars.array_data, column)
        return
    if isinstance(codec, VectorListCodec):
        if column.null_count:
            message.valid_data.extend(column.is_valid().to_pylist())
        message.vectors.dim = field.dim
        codec.encode(field, message.vectors.vector_array, column)
        return
    if field.nullable:  # one flag for each row, and the vectors that there are
        message.valid_data.extend(column.is_valid().to_pylist())
    codec.encode(message.vectors, field, column.drop_null())


def add_ids(ids: schema_pb2.IDs, keys: PrimaryKeys) -> None:
    """Fill an ``IDs`` message."""
    filled = ids.int_id if isinstance(keys, np.ndarray) else ids.str_id
    filled.SetInParent()  # clients check the kind even when it is empty
    extend(filled.data, keys)


def extend(target: Any, values: PrimaryKeys | npt.NDArray[np.integer[Any]]) -> None:
    """Append values to a repeated field of numbers or texts."""
    for piece in pieces(len(values)):
        target.extend(values[piece].tolist())


def _add_groups(data: schema_pb2.SearchResultData, result: SearchResult, times: TimeFormat) -> None:
    """Add the values of the grouping fields. Clients up to 2.6 know one field; newer ones read a list."""
    if len(result.groups) > 1:
        _add_columns(data.group_by_field_values, result.groups, result.schema, times)
        return
    for name, column in result.groups.items():
        encode_column(data.group_by_field_value, name, result.schema.by_name.get(name), column, times)


def _add_columns(
    target: RepeatedCompositeFieldContainer[schema_pb2.FieldData],
    columns: Mapping[str, pa.Array],
    schema: CollectionSchema,
    times: TimeFormat,
) -> None:
    for name in add_structs(target.add, columns, schema, encode_column):
        encode_column(target.add(), name, field_of_column(name, schema), columns[name], times)


def _add_scalars(message: schema_pb2.FieldData, codec: ScalarCodec, column: pa.Array) -> None:
    if column.null_count:
        message.valid_data.extend(column.is_valid().to_pylist())
        column = pc.fill_null(column, codec.null_stand_in)
    target = getattr(message.scalars, codec.member)
    target.SetInParent()  # an empty column is present, too
    codec.encode(target, column)
