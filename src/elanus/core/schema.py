"""Collection schemas: the fields of a collection, each of one data type (`elanus.core.types`).

A schema with ``enable_dynamic`` has one more JSON field, ``$meta``, that holds a row's undeclared fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from elanus.core.errors import FieldNotFound, Internal
from elanus.core.functions import BM25, Function
from elanus.core.ids import FieldID
from elanus.core.structs import StructSchema
from elanus.core.types import KINDS, VECTOR_FORMS, FieldKind, VectorForm
from elanus.core.types import DataType as DataType

FIELD_ID_KEY = b"PARQUET:field_id"
"""The key of a field's id in the metadata of an Arrow field, as Parquet files have it."""
ROW_ID_FIELD = "RowID"
TIMESTAMP_FIELD = "Timestamp"
DYNAMIC_FIELD = "$meta"
SYSTEM_FIELDS = (ROW_ID_FIELD, TIMESTAMP_FIELD)

Scalar = bool | int | float | str


@dataclass(frozen=True)
class FieldSchema:
    """One declared field. ``dim`` is set for vectors, ``max_length`` (bytes) for VarChar and arrays of it.

    ``element_type`` and ``max_capacity`` (elements of one row) are set for arrays, also for those of vectors.
    The values of a field with ``is_function_output`` are computed by a function of the schema: clients do not
    send them, and get those of `CollectionSchema.returns` alone.
    ``default_value`` is the value for rows without the field; ``nullable`` allows null.
    ``params`` keeps any other type parameters that a client sent (``mmap.enabled`` …), so that
    describing the collection returns them. ``is_added``: the collection may have rows without the field
    (`elanus.core.added_fields`).
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
    element_type: DataType = DataType.NONE
    max_capacity: int = 0
    is_function_output: bool = False
    is_partition_key: bool = False
    is_clustering_key: bool = False
    is_added: bool = False

    @property
    def kind(self) -> FieldKind:
        """The properties of the field's data type. Raises `Internal` for a type that fields cannot have."""
        try:
            return KINDS[self.data_type]
        except KeyError:
            raise Internal(
                f"field {self.name!r} has type {self.data_type.name}, which has no column form"
            ) from None

    @property
    def vector(self) -> VectorForm:
        """The form of the field's vectors, or of those in its lists. Raises `Internal` for other fields."""
        try:
            return VECTOR_FORMS[self.searched_type]
        except KeyError:
            raise Internal(
                f"field {self.name!r} has type {self.data_type.name}, which is no vector type"
            ) from None

    @property
    def element(self) -> FieldSchema:
        """The elements of an array as a field of their own, under the array's name."""
        return replace(
            self, data_type=self.element_type, element_type=DataType.NONE, max_capacity=0, nullable=False
        )

    @property
    def has_vector_lists(self) -> bool:
        """Whether a row has a list of vectors: the field of a struct array (`elanus.core.vector_lists`)."""
        return self.data_type is DataType.ARRAY_OF_VECTOR

    @property
    def searched_type(self) -> DataType:
        """The type of the field's values, or of the vectors in its lists."""
        return self.element_type if self.has_vector_lists else self.data_type

    @property
    def is_searched(self) -> bool:
        """Whether searches find rows by the field: it has vectors."""
        return self.kind.vector is not None or self.has_vector_lists

    @property
    def arrow_type(self) -> pa.DataType:
        return self.kind.arrow(self)

    @property
    def row_bytes_estimate(self) -> int:
        """Bytes per row in this field, for sizing segments (VarChar, JSON and arrays: a typical length)."""
        return self.kind.row_bytes(self)


@dataclass(frozen=True, slots=True)
class DroppedField:
    """A field that was dropped: earlier rows have it, and its id is never used again."""

    name: str
    field_id: FieldID


@dataclass(frozen=True)
class CollectionSchema:
    """A collection's fields in declared order; the dynamic field, if any, is last.

    ``structs``: the struct arrays, whose fields are among ``fields`` (`elanus.core.structs`). ``dropped``:
    fields that it had (`elanus.core.dropped_fields`). ``ttl_field``: the field with the moment at which a row
    expires, "" for none (`elanus.core.time_to_live`).
    """

    name: str
    fields: tuple[FieldSchema, ...]
    description: str = ""
    enable_dynamic: bool = False
    structs: tuple[StructSchema, ...] = ()
    functions: tuple[Function, ...] = ()
    dropped: tuple[DroppedField, ...] = ()
    ttl_field: str = ""

    @cached_property
    def primary_field(self) -> FieldSchema:
        return next(f for f in self.fields if f.is_primary)

    @cached_property
    def vector_fields(self) -> tuple[FieldSchema, ...]:
        return tuple(f for f in self.fields if f.kind.vector is not None)

    @cached_property
    def searched_fields(self) -> tuple[FieldSchema, ...]:
        """The vector fields, and those with lists of vectors."""
        return tuple(f for f in self.fields if f.is_searched)

    @cached_property
    def scalar_fields(self) -> tuple[FieldSchema, ...]:
        """All other fields than `vector_fields`: those whose columns a segment holds as they are."""
        return tuple(f for f in self.fields if f.kind.vector is None)

    @cached_property
    def dynamic_field(self) -> FieldSchema | None:
        return next((f for f in self.fields if f.is_dynamic), None)

    @cached_property
    def partition_key(self) -> FieldSchema | None:
        """The field whose values decide the partitions of rows (`elanus.core.partition_keys`)."""
        return next((f for f in self.fields if f.is_partition_key), None)

    @cached_property
    def clustering_key(self) -> FieldSchema | None:
        """The field whose ranges the segments hold after a clustering compaction."""
        return next((f for f in self.fields if f.is_clustering_key), None)

    @cached_property
    def added_fields(self) -> tuple[FieldSchema, ...]:
        return tuple(f for f in self.fields if f.is_added)

    @cached_property
    def by_name(self) -> Mapping[str, FieldSchema]:
        return {f.name: f for f in self.fields}

    @cached_property
    def by_id(self) -> Mapping[FieldID, FieldSchema]:
        return {f.field_id: f for f in self.fields}

    def members(self, struct: str) -> tuple[FieldSchema, ...]:
        """Return the arrays that hold the fields of a struct array."""
        return tuple(f for f in self.fields if f.name.startswith(f"{struct}["))

    def field(self, name: str) -> FieldSchema:
        """Return the declared field of that name. Raises `FieldNotFound`."""
        try:
            return self.by_name[name]
        except KeyError:
            known = ", ".join(f.name for f in self.fields)
            raise FieldNotFound(f"field {name} not exist: collection {self.name} has {known}") from None

    def is_read_as(self, other: CollectionSchema) -> bool:
        """Whether readers of rows do the same by both: they differ in what only proxies use, if at all."""
        return self == other or _for_readers(self) == _for_readers(other)

    def __getstate__(self) -> dict[str, Any]:
        """The declared values alone. Arrow forgets, when pickled, that the items of a list are not null."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def function_of(self, field: FieldSchema) -> Function | None:
        """Return the function by which readers of the rows compute the field's values, if there is one."""
        return next((f for f in self.computed_functions if field.name in f.outputs), None)

    @cached_property
    def computed_functions(self) -> tuple[Function, ...]:
        """The functions whose values are not in the log: readers compute them."""
        return tuple(f for f in self.functions if not f.is_stored)

    @cached_property
    def stored_functions(self) -> tuple[Function, ...]:
        """The functions whose values a proxy computes when it writes a row."""
        return tuple(f for f in self.functions if f.is_stored)

    def returns(self, field: FieldSchema) -> bool:
        """Whether clients can have the field's values: all but those that a BM25 function computes."""
        function = self.function_of(field) if field.is_function_output else None
        return function is None or function.kind != BM25

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The user columns of a batch of rows, in declared order.

        A column whose name a dropped field had carries its field id, so that readers can distinguish the two.
        """
        return pa.schema(
            [
                pa.field(
                    f.name,
                    f.arrow_type,
                    nullable=f.nullable,
                    metadata={FIELD_ID_KEY: str(f.field_id)} if f.name in self.dropped_names else None,
                )
                for f in self.fields
            ]
        )

    @cached_property
    def dropped_names(self) -> frozenset[str]:
        return frozenset(f.name for f in self.dropped)

    @property
    def next_field_id(self) -> FieldID:
        """An id that no field and no struct array of the collection has or had."""
        known = [f.field_id for f in self.fields]
        known += [s.field_id for s in self.structs] + [d.field_id for d in self.dropped]
        return FieldID(1 + max(known))

    @cached_property
    def row_bytes_estimate(self) -> int:
        return 16 + sum(f.row_bytes_estimate for f in self.fields)


def _for_readers(schema: CollectionSchema) -> CollectionSchema:
    """Return the schema without what may change while readers go on: names, descriptions, bounds, and the
    functions whose values are in the log."""
    functions = schema.computed_functions
    computed = {name for function in functions for name in function.outputs}
    bare = tuple(replace(f, description="", max_length=0, max_capacity=0, params={}) for f in schema.fields)
    plain = tuple(replace(f, is_function_output=f.name in computed) for f in bare)
    structs = tuple(replace(struct, description="", params={}) for struct in schema.structs)
    return replace(schema, name="", description="", fields=plain, structs=structs, functions=functions)
