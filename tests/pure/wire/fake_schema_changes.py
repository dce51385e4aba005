"""The verbs of the fake front that change a collection, and partial updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from fake_rows import altered

from elanus.core.added_fields import widened
from elanus.core.field_changes import with_added_field, with_altered_field
from elanus.core.schema import FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.proxy.api import MutationResult
from elanus.proxy.update_api import Update

if TYPE_CHECKING:
    from fake_front import Held


class FakeSchemaChanges:
    def __init__(self) -> None:
        self.updates: list[Update] = []
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
        schema = with_added_field(held.view.schema, field)
        held.rows = {
            partition: pa.Table.from_batches(
                [widened(batch, schema) for batch in rows.to_batches()], schema.arrow_schema
            )
            for partition, rows in held.rows.items()
        }
        held.view = replace(held.view, schema=schema, schema_ts=self.allocate_timestamp())

    def truncate_collection(self, database: str, name: str) -> None:
        held = self._held(database, name)
        held.rows = {partition: rows.slice(0, 0) for partition, rows in held.rows.items()}

    def update(self, request: Update) -> MutationResult:
        self.updates.append(request)
        keys = request.rows.column(request.collection.view.schema.primary_field.name)
        return MutationResult(keys, len(keys), len(keys), len(keys), self.allocate_timestamp())
