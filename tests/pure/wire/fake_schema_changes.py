"""Those of the fake verbs that change a collection, and partial updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from fake_rows import altered

from elanus.core.added_fields import widened
from elanus.core.dropped_fields import with_dropped_field
from elanus.core.field_changes import with_added_field, with_added_struct, with_altered_field
from elanus.core.function_changes import with_added_function, with_dropped_function, with_set_function
from elanus.core.functions import Function
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.structs import StructSchema
from elanus.core.timestamps import Timestamp
from elanus.proxy.api.writes import MutationResult, Update

if TYPE_CHECKING:
    from fake_verbs import Held


class FakeSchemaChanges:
    def __init__(self) -> None:
        self.updates: list[Update] = []
        self.indexed: list[tuple[str, dict[str, str]]] = []
        super().__init__()

    def _held(self, database: str, name: str) -> Held:
        raise NotImplementedError

    def allocate_timestamp(self) -> Timestamp:
        raise NotImplementedError

    def alter_collection(
        self, database: str, name: str, set_properties: Mapping[str, str], delete_keys: Sequence[str]
    ) -> None:
        held = self._held(database, name)
        held.view = replace(held.view, properties=altered(held.view.properties, set_properties, delete_keys))

    def alter_field(
        self,
        database: str,
        collection: str,
        field: str,
        set_properties: Mapping[str, str],
        delete_keys: Sequence[str],
    ) -> None:
        held = self._held(database, collection)
        schema = with_altered_field(held.view.schema, field, set_properties, delete_keys)
        held.view = replace(held.view, schema=schema, schema_ts=self.allocate_timestamp())

    def add_field(self, database: str, collection: str, field: FieldSchema) -> None:
        held = self._held(database, collection)
        self._show(held, with_added_field(held.view.schema, field))

    def add_struct(
        self, database: str, collection: str, struct: StructSchema, members: tuple[FieldSchema, ...]
    ) -> None:
        held = self._held(database, collection)
        self._show(held, with_added_struct(held.view.schema, struct, members))

    def _show(self, held: Held, schema: CollectionSchema) -> None:
        held.rows = {
            partition: pa.Table.from_batches(
                [widened(batch, schema) for batch in rows.to_batches()], schema.arrow_schema
            )
            for partition, rows in held.rows.items()
        }
        held.view = replace(held.view, schema=schema, schema_ts=self.allocate_timestamp())

    def add_function(
        self,
        database: str,
        collection: str,
        field: FieldSchema,
        function: Function,
        index_name: str,
        index_params: Mapping[str, str],
    ) -> None:
        held = self._held(database, collection)
        self._show(held, with_added_function(held.view.schema, field, function))
        self.indexed.append((index_name, dict(index_params)))

    def set_function(self, database: str, collection: str, function: Function, replaced: str = "") -> None:
        held = self._held(database, collection)
        self._show(held, with_set_function(held.view.schema, function, replaced))

    def drop_field(self, database: str, collection: str, field: str, field_id: int = 0) -> None:
        held = self._held(database, collection)
        self._show(held, with_dropped_field(held.view.schema, field, FieldID(field_id)))

    def drop_function(self, database: str, collection: str, function: str, *, with_outputs: bool) -> None:
        held = self._held(database, collection)
        self._show(held, with_dropped_function(held.view.schema, function, with_outputs=with_outputs))

    def truncate_collection(self, database: str, name: str) -> None:
        held = self._held(database, name)
        held.rows = {partition: rows.slice(0, 0) for partition, rows in held.rows.items()}

    def update(self, request: Update) -> MutationResult:
        self.updates.append(request)
        keys = request.rows.column(request.collection.view.schema.primary_field.name)
        return MutationResult(keys, len(keys), len(keys), len(keys), self.allocate_timestamp())
