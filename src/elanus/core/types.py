"""The data types of fields: one object for each, which defines everything that depends on the type.

Code asks the object (``field.kind``, ``field.vector``) instead of comparing names. A type that is missing
from `KINDS` cannot be the type of a field. The tables of the edges (`elanus.proxy.wire.codecs`,
`elanus.core.given_types`, `elanus.pipeline.import_columns`, `elanus.spark.source`) have the same keys; a test
compares them.

Inside Elanus a batch of rows is a `pyarrow.RecordBatch` whose columns carry the field names. The log, growing
segments and the Parquet binlogs have the same Arrow types:

============== ==========================================================
Bool           ``bool``
Int8 … Int64   ``int8`` … ``int64``
Float, Double  ``float32``, ``float64``
VarChar        ``string``
Text           ``string``
JSON           ``string``: compact UTF-8 JSON text
Geometry       ``binary``: Well-Known Binary
Timestamptz    ``int64``: microseconds since 1970 in UTC
Array          ``list<item: element type not null>``
ArrayOfVector  ``list<item: fixed_size_binary not null>``: the stored values
               of each vector, little-endian (`elanus.core.vector_lists`)
FloatVector    ``fixed_size_list<float32>[dim]``
BinaryVector   ``fixed_size_binary[dim / 8]``: bit 0 of the vector is the
               highest bit of the first byte, as the wire has it
Float16Vector  ``fixed_size_binary[2 · dim]``: IEEE 754 half precision,
               little-endian
BFloat16Vector ``fixed_size_binary[2 · dim]``: the upper halves of float32,
               little-endian
SparseVector   ``binary``: pairs of uint32 index and float32 value in the
               order of the indices, little-endian
Int8Vector     ``fixed_size_binary[dim]``: signed bytes
============== ==========================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.metrics import BINARY_METRICS, FLOAT_METRICS, SPARSE_METRICS, Metric
from elanus.core.sparse import PAIR, SparseForm
from elanus.core.vectors import Matrix as Matrix
from elanus.core.vectors import Space as Space
from elanus.core.vectors import VectorForm as VectorForm

_TEXT_BYTES_TYPICAL = 256
_LONG_TEXT_BYTES_TYPICAL = 1024
_ARRAY_ELEMENTS_TYPICAL = 16
_GEOMETRY_BYTES_TYPICAL = 64
_OFFSET_BYTES = 4


class DataType(IntEnum):
    """The wire's numbers. For types outside `KINDS` only the name is defined."""

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
    ARRAY_OF_VECTOR = 106

    @property
    def is_vector(self) -> bool:
        """Whether a row has one vector. True for types outside `KINDS`, too: clients may name them."""
        return self >= DataType.BINARY_VECTOR and self is not DataType.ARRAY_OF_VECTOR


class Family(Enum):
    """How the filter language treats a value: values of the same family can be compared."""

    BOOL = "bool"
    INTEGER = "integer"
    FLOATING = "floating"
    TEXT = "text"
    JSON = "json"
    TIME = "time"
    GEOMETRY = "geometry"
    LIST = "list"
    VECTOR = "vector"

    @property
    def is_number(self) -> bool:
        return self is Family.INTEGER or self is Family.FLOATING


class Sized(Protocol):
    """The part of a field that its type needs (`elanus.core.schema.FieldSchema`)."""

    @property
    def dim(self) -> int: ...
    @property
    def max_length(self) -> int: ...
    @property
    def element_type(self) -> DataType: ...
    @property
    def max_capacity(self) -> int: ...


@dataclass(frozen=True, slots=True, eq=False)
class FieldKind:
    """A data type of fields.

    ``name``: as the reference's filter messages write it. ``arrow``: the Arrow type of a field's column.
    ``row_bytes``: bytes per row, for texts and arrays a typical length. ``integer_range``: both ends
    included.
    ``has_max_length``: such a field declares its maximum length, in bytes. ``can_be_key``: as primary key.
    ``has_bounds``: the least and the greatest value of a column are meaningful, and are kept as statistics.
    ``vector``: set for types of which a row has one vector.
    """

    data_type: DataType
    name: str
    family: Family
    arrow: Callable[[Sized], pa.DataType]
    row_bytes: Callable[[Sized], int]
    integer_range: tuple[int, int] | None = None
    has_max_length: bool = False
    can_be_key: bool = False
    has_bounds: bool = True
    vector: VectorForm | None = None

    @property
    def is_long_text(self) -> bool:
        """Whether rows are only found by the words of a value: as in the reference such values are not
        compared, ordered, grouped, aggregated or indexed, and have no default."""
        return self.data_type is DataType.TEXT

    def too_long(self, field: Sized, column: pa.Array) -> int | None:
        """Return the row of the first text of a ``string`` column that exceeds ``max_length``, if any."""
        if not self.has_max_length or not len(column):
            return None
        lengths = pc.binary_length(column)
        longest = pc.max(lengths).as_py()
        if longest is None or longest <= field.max_length:
            return None
        return int(pc.index(pc.greater(lengths, field.max_length), True).as_py())


def _fixed(
    data_type: DataType, name: str, family: Family, arrow: pa.DataType, *, can_be_key: bool = False
) -> FieldKind:
    """A scalar of a fixed number of bits."""
    bits = int(arrow.bit_width)
    return FieldKind(
        data_type,
        name,
        family,
        lambda _: arrow,
        lambda _: max(1, bits // 8),
        integer_range=(-(1 << bits - 1), (1 << bits - 1) - 1) if family is Family.INTEGER else None,
        can_be_key=can_be_key,
    )


def _vector(data_type: DataType, name: str, form: VectorForm) -> FieldKind:
    return FieldKind(
        data_type,
        name,
        Family.VECTOR,
        lambda field: form.arrow_type(field.dim),
        lambda field: form.row_bytes(field.dim),
        has_bounds=False,
        vector=form,
    )


def _array_arrow_type(field: Sized) -> pa.DataType:
    return pa.list_(pa.field("item", KINDS[field.element_type].arrow(field), nullable=False))


def _array_row_bytes(field: Sized) -> int:
    elements = min(field.max_capacity, _ARRAY_ELEMENTS_TYPICAL)
    return _OFFSET_BYTES + elements * KINDS[field.element_type].row_bytes(field)


def _vector_lists_arrow_type(field: Sized) -> pa.DataType:
    vector_bytes = VECTOR_FORMS[field.element_type].row_bytes(field.dim)
    return pa.list_(pa.field("item", pa.binary(vector_bytes), nullable=False))


def _vector_lists_row_bytes(field: Sized) -> int:
    elements = min(field.max_capacity, _ARRAY_ELEMENTS_TYPICAL)
    return _OFFSET_BYTES + elements * VECTOR_FORMS[field.element_type].row_bytes(field.dim)


_ALL = (
    _fixed(DataType.BOOL, "Bool", Family.BOOL, pa.bool_()),
    _fixed(DataType.INT8, "Int8", Family.INTEGER, pa.int8()),
    _fixed(DataType.INT16, "Int16", Family.INTEGER, pa.int16()),
    _fixed(DataType.INT32, "Int32", Family.INTEGER, pa.int32()),
    _fixed(DataType.INT64, "Int64", Family.INTEGER, pa.int64(), can_be_key=True),
    _fixed(DataType.FLOAT, "Float", Family.FLOATING, pa.float32()),
    _fixed(DataType.DOUBLE, "Double", Family.FLOATING, pa.float64()),
    FieldKind(
        DataType.VARCHAR,
        "VarChar",
        Family.TEXT,
        lambda _: pa.string(),
        lambda field: min(field.max_length, _TEXT_BYTES_TYPICAL),
        has_max_length=True,
        can_be_key=True,
    ),
    FieldKind(
        DataType.TEXT,
        "Text",
        Family.TEXT,
        lambda _: pa.string(),
        lambda _: _LONG_TEXT_BYTES_TYPICAL,
        has_bounds=False,
    ),
    FieldKind(
        DataType.JSON,
        "JSON",
        Family.JSON,
        lambda _: pa.string(),
        lambda _: _TEXT_BYTES_TYPICAL,
        has_bounds=False,
    ),
    FieldKind(
        DataType.GEOMETRY,
        "Geometry",
        Family.GEOMETRY,
        lambda _: pa.binary(),
        lambda _: _GEOMETRY_BYTES_TYPICAL,
        has_bounds=False,
    ),
    _fixed(DataType.TIMESTAMPTZ, "Timestamptz", Family.TIME, pa.int64()),
    FieldKind(
        DataType.ARRAY,
        "Array",
        Family.LIST,
        _array_arrow_type,
        _array_row_bytes,
        has_bounds=False,
    ),
    _vector(
        DataType.FLOAT_VECTOR,
        "FloatVector",
        VectorForm(
            Space.FLOATS,
            "float32",
            pa.float32(),
            FLOAT_METRICS,
            Metric.COSINE,
            engine_name="VECTOR_FLOAT",
        ),
    ),
    _vector(
        DataType.BINARY_VECTOR,
        "BinaryVector",
        VectorForm(
            Space.BITS,
            "uint8",
            None,
            BINARY_METRICS,
            Metric.HAMMING,
            engine_name="VECTOR_BINARY",
            dims_per_value=8,
        ),
    ),
    _vector(
        DataType.FLOAT16_VECTOR,
        "Float16Vector",
        VectorForm(
            Space.FLOATS,
            "float16",
            None,
            FLOAT_METRICS,
            Metric.COSINE,
            engine_name="VECTOR_FLOAT16",
        ),
    ),
    _vector(
        DataType.BFLOAT16_VECTOR,
        "BFloat16Vector",
        VectorForm(
            Space.FLOATS,
            "bfloat16",
            None,
            FLOAT_METRICS,
            Metric.COSINE,
            engine_name="VECTOR_BFLOAT16",
        ),
    ),
    _vector(
        DataType.SPARSE_FLOAT_VECTOR,
        "SparseFloatVector",
        SparseForm(
            Space.SPARSE,
            PAIR.name,
            None,
            SPARSE_METRICS,
            Metric.IP,
            engine_name="VECTOR_SPARSE_U32_F32",
        ),
    ),
    _vector(
        DataType.INT8_VECTOR,
        "Int8Vector",
        VectorForm(
            Space.FLOATS,
            "int8",
            None,
            FLOAT_METRICS,
            Metric.COSINE,
            engine_name="VECTOR_INT8",
        ),
    ),
    FieldKind(
        DataType.ARRAY_OF_VECTOR,
        "ArrayOfVector",
        Family.VECTOR,
        _vector_lists_arrow_type,
        _vector_lists_row_bytes,
        has_bounds=False,
    ),
)

KINDS: Mapping[DataType, FieldKind] = {kind.data_type: kind for kind in _ALL}
ELEMENT_TYPES = frozenset(
    {
        DataType.BOOL,
        DataType.INT8,
        DataType.INT16,
        DataType.INT32,
        DataType.INT64,
        DataType.FLOAT,
        DataType.DOUBLE,
        DataType.VARCHAR,
    }
)
"""The types that the elements of an array can have."""
LISTED_VECTORS = frozenset(
    {
        DataType.FLOAT_VECTOR,
        DataType.BINARY_VECTOR,
        DataType.FLOAT16_VECTOR,
        DataType.BFLOAT16_VECTOR,
        DataType.INT8_VECTOR,
    }
)
"""The types of the vectors that a struct array can have."""
VECTOR_FORMS: Mapping[DataType, VectorForm] = {k.data_type: k.vector for k in _ALL if k.vector is not None}


def vectors_in(space: Space) -> frozenset[DataType]:
    """Return the vector types whose vectors are compared in this space."""
    return frozenset(k.data_type for k in _ALL if k.vector is not None and k.vector.space is space)


def family_of(data_type: DataType) -> Family:
    """Return the family of a field's values, or of a literal in a filter, where a list has the type Array."""
    return KINDS[data_type].family


def engine_type_name(data_type: DataType) -> str:
    """Return a type's name in the messages of the reference's engine: INT64, VARCHAR, VECTOR_FLOAT."""
    if data_type is DataType.ARRAY_OF_VECTOR:
        return "VECTOR_ARRAY"
    form = VECTOR_FORMS.get(data_type)
    return data_type.name if form is None else form.engine_name


def type_name(data_type: DataType) -> str:
    """Return a type's name in the reference's messages: Int64, VarChar, FloatVector."""
    return KINDS[data_type].name if data_type in KINDS else data_type.name.capitalize()
