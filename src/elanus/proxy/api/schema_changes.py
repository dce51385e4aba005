"""The verbs that change the schema of a collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from elanus.core.functions import Function
from elanus.core.schema import FieldSchema
from elanus.core.structs import StructSchema


class SchemaVerbs(Protocol):
    def alter_field(
        self,
        database: str,
        collection: str,
        field: str,
        set_properties: Mapping[str, str],
        delete_keys: Sequence[str],
    ) -> None:
        """Change the bounds of a field's values. Raises `FieldNotFound`, `InvalidParameter`."""
        ...

    def add_field(self, database: str, collection: str, field: FieldSchema) -> None:
        """Add a nullable field; older rows have its default, or null. Raises `InvalidParameter`."""
        ...

    def add_struct(
        self, database: str, collection: str, struct: StructSchema, members: tuple[FieldSchema, ...]
    ) -> None:
        """Add a nullable struct array, whose arrays are null in older rows. Raises `InvalidParameter`."""
        ...

    def add_function(
        self,
        database: str,
        collection: str,
        field: FieldSchema,
        function: Function,
        index_name: str,
        index_params: Mapping[str, str],
    ) -> None:
        """Add a function with the field that it computes and an index on it. Raises `InvalidParameter`."""
        ...

    def set_function(self, database: str, collection: str, function: Function, replaced: str = "") -> None:
        """Add a function whose values are stored, or alter the named one. Raises `InvalidParameter`."""
        ...

    def drop_field(self, database: str, collection: str, field: str, field_id: int = 0) -> None:
        """Drop a field with its values and indexes, by name or id. Raises `InvalidParameter`."""
        ...

    def drop_function(self, database: str, collection: str, function: str, *, with_outputs: bool) -> None:
        """Drop a function, with the fields that it computes or without. Raises `InvalidParameter`."""
        ...
