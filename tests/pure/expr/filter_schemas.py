"""The collections that the filter tests bind to."""

from __future__ import annotations

from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema

ARRAYS = {
    "bytes": DataType.INT8,
    "longs": DataType.INT64,
    "floats": DataType.FLOAT,
    "doubles": DataType.DOUBLE,
    "labels": DataType.VARCHAR,
    "flags": DataType.BOOL,
}
"""The array fields, with the types of their elements."""

_FIELDS = (
    FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
    FieldSchema(FieldID(101), "tiny", DataType.INT8, nullable=True),
    FieldSchema(FieldID(102), "price", DataType.DOUBLE, nullable=True),
    FieldSchema(FieldID(103), "score", DataType.FLOAT, nullable=True),
    FieldSchema(FieldID(104), "color", DataType.VARCHAR, max_length=64, nullable=True),
    FieldSchema(FieldID(105), "name", DataType.VARCHAR, max_length=64, nullable=True),
    FieldSchema(FieldID(106), "flag", DataType.BOOL, nullable=True),
    FieldSchema(FieldID(107), "meta", DataType.JSON, nullable=True),
    FieldSchema(FieldID(108), "vector", DataType.FLOAT_VECTOR, dim=4),
    *(
        FieldSchema(
            FieldID(110 + number),
            name,
            DataType.ARRAY,
            element_type=element_type,
            max_capacity=8,
            max_length=64 if element_type is DataType.VARCHAR else 0,
            nullable=True,
        )
        for number, (name, element_type) in enumerate(ARRAYS.items())
    ),
)
_DYNAMIC = FieldSchema(FieldID(109), "$meta", DataType.JSON, is_dynamic=True)

PLAIN = CollectionSchema("plain", _FIELDS)
DYNAMIC = CollectionSchema("dynamic", (*_FIELDS, _DYNAMIC), enable_dynamic=True)
TEXT_KEY = CollectionSchema(
    "text_key", (FieldSchema(FieldID(100), "key", DataType.VARCHAR, max_length=64, is_primary=True),)
)
