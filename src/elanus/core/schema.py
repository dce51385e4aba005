"""Collection schemas, and how a field's values lie in Arrow.

Inside Elanus a batch of rows is a `pyarrow.RecordBatch` whose columns carry the field names. The
same types stand in the log, in growing segments and in the Parquet binlogs:

=============  ==========================================================
Bool           ``bool``
Int8 … Int64   ``int8`` … ``int64``
Float, Double  ``float32``, ``float64``
VarChar        ``string``
JSON           ``string``: compact UTF-8 JSON text
FloatVector    ``fixed_size_list<float32>[dim]``
BinaryVector   ``fixed_size_binary[dim / 8]``: bit 0 of the vector is the
               highest bit of the first byte, as the wire has it
=============  ==========================================================

A schema with ``enable_dynamic`` has one more JSON field, ``$meta``, that holds what a row carries
beyond its declared fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import pyarrow as pa

from elanus.core.errors import FieldNotFound, Internal
from elanus.core.ids import FieldID

ROW_ID_FIELD = "RowID"
TIMESTAMP_FIELD = "Timestamp"
DYNAMIC_FIELD = "$meta"
SYSTEM_FIELDS = (ROW_ID_FIELD, TIMESTAMP_FIELD)

Scalar = bool | int | float | str


class DataType(IntEnum):
    """The wire's numbers. Types outside `SUPPORTED_TYPES` are known by name only."""

    NONE = 0
    BOOL = 1
    INT8 = 2
    INT16 = 3
    INT32 = 4
    INT64 = 5
    FLOAT = 10
    DOUBLE = 11
    STRING = 20
    VARCHAR = 21
    ARRAY = 22
    JSON = 23
    GEOMETRY = 24
    TEXT = 25
    TIMESTAMPTZ = 26
    BINARY_VECTOR = 100
    FLOAT_VECTOR = 101
    FLOAT16_VECTOR = 102
    BFLOAT16_VECTOR = 103
    SPARSE_FLOAT_VECTOR = 104
    INT8_VECTOR = 105

    @property
    def is_vector(self) -> bool:
        return self >= DataType.BINARY_VECTOR

    @property
    def is_integer(self) -> bool:
        return DataType.INT8 <= self <= DataType.INT64

    @property
    def is_floating(self) -> bool:
        return self in (DataType.FLOAT, DataType.DOUBLE)


_ARROW: dict[DataType, pa.DataType] = {
    DataType.BOOL: pa.bool_(),
    DataType.INT8: pa.int8(),
    DataType.INT16: pa.int16(),
    DataType.INT32: pa.int32(),
    DataType.INT64: pa.int64(),
    DataType.FLOAT: pa.float32(),
    DataType.DOUBLE: pa.float64(),
    DataType.VARCHAR: pa.string(),
    DataType.JSON: pa.string(),
}

SUPPORTED_TYPES = frozenset({*_ARROW, DataType.FLOAT_VECTOR, DataType.BINARY_VECTOR})


@dataclass(frozen=True)
class FieldSchema:
    """One declared field. ``dim`` is set for vectors, ``max_length`` (bytes) for VarChar.

    ``default_value`` is what a row gets that does not carry the field; ``nullable`` allows null.
    ``params`` keeps the type parameters a client sent beyond those (``mmap.enabled`` …), so that
    describing the collection returns them.
    """

    field_id: FieldID
    name: str
    data_type: DataType
    description: str = ""
    is_primary: bool = False
    auto_id: bool = False
    dim: int = 0
    max_length: int = 0
    nullable: bool = False
    default_value: Scalar | None = None
    is_dynamic: bool = False
    params: Mapping[str, str] = field(default_factory=dict)

    @property
    def arrow_type(self) -> pa.DataType:
        if self.data_type is DataType.FLOAT_VECTOR:
            return pa.list_(pa.field("item", pa.float32(), nullable=False), self.dim)
        if self.data_type is DataType.BINARY_VECTOR:
            return pa.binary(self.dim // 8)
        try:
            return _ARROW[self.data_type]
        except KeyError:
            raise Internal(
                f"field {self.name!r} has type {self.data_type.name}, which has no column form"
            ) from None

    @property
    def row_bytes_estimate(self) -> int:
        """Bytes a row takes in this field, for sizing segments (VarChar and JSON: a typical length)."""
        if self.data_type is DataType.FLOAT_VECTOR:
            return self.dim * 4
        if self.data_type is DataType.BINARY_VECTOR:
            return self.dim // 8
        if self.data_type is DataType.VARCHAR:
            return min(self.max_length, 256)
        if self.data_type is DataType.JSON:
            return 256
        return max(1, int(self.arrow_type.bit_width) // 8)


@dataclass(frozen=True)
class CollectionSchema:
    """A collection's fields in declared order; the dynamic field, if any, stands last."""

    name: str
    fields: tuple[FieldSchema, ...]
    description: str = ""
    enable_dynamic: bool = False

    @cached_property
    def primary_field(self) -> FieldSchema:
        return next(f for f in self.fields if f.is_primary)

    @cached_property
    def vector_fields(self) -> tuple[FieldSchema, ...]:
        return tuple(f for f in self.fields if f.data_type.is_vector)

    @cached_property
    def scalar_fields(self) -> tuple[FieldSchema, ...]:
        return tuple(f for f in self.fields if not f.data_type.is_vector)

    @cached_property
    def dynamic_field(self) -> FieldSchema | None:
        return next((f for f in self.fields if f.is_dynamic), None)

    @cached_property
    def by_name(self) -> Mapping[str, FieldSchema]:
        return {f.name: f for f in self.fields}

    @cached_property
    def by_id(self) -> Mapping[FieldID, FieldSchema]:
        return {f.field_id: f for f in self.fields}

    def field(self, name: str) -> FieldSchema:
        """The declared field of that name. Raises `FieldNotFound`."""
        try:
            return self.by_name[name]
        except KeyError:
            known = ", ".join(f.name for f in self.fields)
            raise FieldNotFound(f"field {name} not exist: collection {self.name} has {known}") from None

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The user columns of a batch of rows, in declared order."""
        return pa.schema([pa.field(f.name, f.arrow_type, nullable=f.nullable) for f in self.fields])

    @cached_property
    def row_bytes_estimate(self) -> int:
        return 16 + sum(f.row_bytes_estimate for f in self.fields)
