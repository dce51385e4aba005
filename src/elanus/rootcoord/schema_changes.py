"""Changes of a collection that keep its id: of its fields, and the removal of all rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from elanus.api.datacoord import DataCoordApi
from elanus.api.querycoord import QueryCoordApi
from elanus.core.field_changes import with_added_field, with_altered_field
from elanus.core.ids import CollectionID
from elanus.core.schema import FieldSchema
from elanus.rootcoord.lifecycle import Lifecycle


class SchemaChanges(Lifecycle):
    async def alter_field(
        self, database: str, name: str, field: str, params: Mapping[str, str], delete_keys: tuple[str, ...]
    ) -> None:
        """Change parameters of a field that only proxies read: those that bound its values."""
        async with self._ddl_lock:
            found = self._catalog.collection(database, name)
            schema = with_altered_field(found.schema, field, params, delete_keys)
            await self._change(replace(found, schema=schema, schema_ts=self._oracle.allocate()))

    async def add_field(self, database: str, name: str, field: FieldSchema) -> None:
        """Readers get the field before any row can have it: see `elanus.core.added_fields`."""
        async with self._ddl_lock:
            found = self._catalog.collection(database, name)
            schema = with_added_field(found.schema, field)
            await self._data.change_schema(found.collection_id, schema)
            await self._query.reload(found.collection_id)
            await self._change(replace(found, schema=schema, schema_ts=self._oracle.allocate()))

    async def truncate_collection(self, collection_id: CollectionID) -> None:
        """Rows that are there now expire at once. Reads as of an earlier moment still find them."""
        async with self._ddl_lock:
            found = self._catalog.by_id(collection_id)
            await self._change(replace(found, truncated=self._oracle.allocate()))

    @property
    def _data(self) -> DataCoordApi:
        return self._peers.data

    @property
    def _query(self) -> QueryCoordApi:
        return self._peers.query
