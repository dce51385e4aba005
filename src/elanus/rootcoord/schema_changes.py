"""Changes of a collection that keep its id: of its fields, and the removal of all rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from elanus.core.field_changes import with_altered_field
from elanus.core.ids import CollectionID
from elanus.rootcoord.definitions import Definitions


class SchemaChanges(Definitions):
    async def alter_field(
        self, database: str, name: str, field: str, params: Mapping[str, str], delete_keys: tuple[str, ...]
    ) -> None:
        """Change parameters of a field that only proxies read: those that bound its values."""
        async with self._ddl_lock:
            found = self._catalog.collection(database, name)
            schema = with_altered_field(found.schema, field, params, delete_keys)
            await self._change(replace(found, schema=schema, schema_ts=self._oracle.allocate()))

    async def truncate_collection(self, collection_id: CollectionID) -> None:
        """Rows that are there now expire at once. Reads as of an earlier moment still find them."""
        async with self._ddl_lock:
            found = self._catalog.by_id(collection_id)
            await self._change(replace(found, truncated=self._oracle.allocate()))
