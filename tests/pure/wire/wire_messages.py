"""Milvus messages as clients build them, and the schemas the wire's tests share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import Message
from hypothesis import settings

from elanus.core.catalog import Collection
from elanus.core.consistency import ConsistencyLevel
from elanus.core.ids import CollectionID, DatabaseID, FieldID, PartitionID
from elanus.core.schema import DYNAMIC_FIELD, CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.proxy.role.cache import CachedCollection, collection_view
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2, schema_pb2

Call = Callable[..., Message]
"""The fixture ``call``: one RPC over the wire."""

steady = settings(deadline=None, derandomize=True)
"""For property tests: the same cases in every run, and no clock."""

SCALAR_MEMBER = {
    DataType.BOOL: "bool_data",
    DataType.INT8: "int_data",
    DataType.INT16: "int_data",
    DataType.INT32: "int_data",
    DataType.INT64: "long_data",
    DataType.FLOAT: "float_data",
    DataType.DOUBLE: "double_data",
    DataType.VARCHAR: "string_data",
    DataType.JSON: "json_data",
}


def pairs(values: Mapping[str, object]) -> list[Message]:
    return [common_pb2.KeyValuePair(key=key, value=str(value)) for key, value in values.items()]


def scalar_data(
    name: str, data_type: DataType, values: Sequence[Any], valid: Sequence[bool] = (), **more: Any
) -> Message:
    data = schema_pb2.FieldData(field_name=name, type=int(data_type), valid_data=valid, **more)
    getattr(data.scalars, SCALAR_MEMBER[data_type]).data.extend(values)
    return data


def float_vectors(name: str, vectors: Any, dim: int | None = None) -> Message:
    array = np.asarray(vectors, dtype=np.float32)
    data = schema_pb2.FieldData(field_name=name, type=int(DataType.FLOAT_VECTOR))
    data.vectors.dim = array.shape[-1] if dim is None else dim
    data.vectors.float_vector.data.extend(array.ravel().tolist())
    return data


def binary_vectors(name: str, content: bytes, dim: int) -> Message:
    data = schema_pb2.FieldData(field_name=name, type=int(DataType.BINARY_VECTOR))
    data.vectors.dim = dim
    data.vectors.binary_vector = content
    return data


def dynamic_data(documents: Sequence[bytes], name: str = DYNAMIC_FIELD) -> Message:
    return scalar_data(name, DataType.JSON, documents, is_dynamic=True)


def field(name: str, data_type: DataType, number: int = 100, **more: Any) -> FieldSchema:
    return FieldSchema(FieldID(number), name, data_type, **more)


def schema(*fields: FieldSchema, dynamic: bool = False) -> CollectionSchema:
    """``fields`` behind the int64 key ``id``, with the ids they get in a real collection."""
    declared = (field("id", DataType.INT64, is_primary=True), *fields)
    if dynamic:
        declared = (*declared, field(DYNAMIC_FIELD, DataType.JSON, is_dynamic=True))
    numbered = tuple(
        FieldSchema(**{**_members(f), "field_id": FieldID(100 + i)}) for i, f in enumerate(declared)
    )
    return CollectionSchema("books", numbered, enable_dynamic=dynamic)


def resolved(of: CollectionSchema, database: str = "library", **properties: str) -> CachedCollection:
    """A collection of this schema, as its name is resolved: one shard, one partition, no index."""
    found = Collection(
        CollectionID(5),
        DatabaseID(1),
        of.name,
        of,
        ("by-dev-rootcoord-dml_0_5v0",),
        {},
        (),
        ConsistencyLevel.BOUNDED,
        Timestamp(1),
        properties=properties,
    )
    return CachedCollection(collection_view(database, found), {"_default": PartitionID(6)}, ())


def _members(value: FieldSchema) -> dict[str, Any]:
    return {name: getattr(value, name) for name in FieldSchema.__dataclass_fields__}


def field_message(
    name: str, data_type: int, params: Mapping[str, object] | None = None, **more: Any
) -> Message:
    return schema_pb2.FieldSchema(name=name, data_type=data_type, type_params=pairs(params or {}), **more)


def key_message(**more: Any) -> Message:
    return field_message("id", DataType.INT64, is_primary_key=True, **more)


def vector_message(name: str = "vector", dim: object = 4) -> Message:
    return field_message(name, DataType.FLOAT_VECTOR, {"dim": dim})


def schema_bytes(*fields: Message, name: str = "books", **more: Any) -> bytes:
    return bytes(schema_pb2.CollectionSchema(name=name, fields=fields, **more).SerializeToString())


def placeholder_group(values: Sequence[bytes], kind: int = common_pb2.FloatVector) -> bytes:
    value = common_pb2.PlaceholderValue(tag="$0", type=kind, values=values)
    return bytes(common_pb2.PlaceholderGroup(placeholders=[value]).SerializeToString())


def search_request(
    queries: Any = ((0.0, 0.0, 0.0, 0.0),), params: Mapping[str, object] | None = None, **more: Any
) -> Message:
    """A search over ``books`` as pymilvus sends it. A ``params`` entry of ``None`` is left out."""
    array = np.asarray(queries, dtype="<f4")
    said: dict[str, object] = {
        "topk": 3,
        "params": '{"ef":64}',
        "round_decimal": -1,
        "ignore_growing": False,
        "metric_type": "L2",
        "anns_field": "vector",
        **(params or {}),
    }
    more.setdefault("placeholder_group", placeholder_group([row.tobytes() for row in array]))
    more.setdefault("nq", len(array))
    return milvus_pb2.SearchRequest(
        collection_name="books",
        dsl_type=common_pb2.BoolExprV1,
        search_params=pairs({key: value for key, value in said.items() if value is not None}),
        **more,
    )
