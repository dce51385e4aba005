"""Changes of a collection that keep its id: of its fields and functions, and the removal of all rows.

A change that readers take part in is recorded before it begins (`elanus.core.catalog.Collection.becoming`).
A crash or an error between the steps leaves readers that have the new schema and proxies that have the
former; the next tidying completes the change. Without the record, files could hold the column of a field that
was never added, and another field of that name would find it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from elanus.core.catalog import Collection
from elanus.core.dropped_fields import with_dropped_field
from elanus.core.field_changes import with_added_field, with_added_struct, with_altered_field
from elanus.core.function_changes import with_added_function, with_dropped_function, with_set_function
from elanus.core.functions import Function
from elanus.core.ids import CollectionID, FieldID
from elanus.core.property_changes import with_changed_properties
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.structs import StructSchema
from elanus.core.time_to_live import TTL_FIELD_PROPERTY, checked_ttl_field
from elanus.rootcoord.completion import Completion, OtherCoordinators
from elanus.rootcoord.definitions import Definitions


class SchemaChanges:
    """Implements `elanus.api.rootcoord.SchemaCalls`. ``completion`` completes what is interrupted here."""

    def __init__(self, definitions: Definitions, others: OtherCoordinators, completion: Completion) -> None:
        self._definitions = definitions
        self._catalog = definitions.catalog
        self._others = others
        self._completion = completion

    async def alter_collection(
        self, database: str, name: str, properties: Mapping[str, str], delete_keys: tuple[str, ...]
    ) -> None:
        """Change properties. Another ``ttl_field`` is another schema: readers leave out other rows."""
        async with self._definitions.lock:
            found = await self._completion.settled(database, name)
            changed = with_changed_properties(found, properties, delete_keys)
            ttl_field = found.schema.ttl_field
            if TTL_FIELD_PROPERTY in {*properties, *delete_keys}:
                ttl_field = checked_ttl_field(changed.properties, found.schema)
            if ttl_field == found.schema.ttl_field:
                await self._definitions.change(changed)
                return
            await self._change_schema(changed, replace(changed.schema, ttl_field=ttl_field))

    async def alter_field(
        self, database: str, name: str, field: str, params: Mapping[str, str], delete_keys: tuple[str, ...]
    ) -> None:
        """Change parameters of a field that only proxies read: those that bound its values."""
        async with self._definitions.lock:
            found = await self._completion.settled(database, name)
            schema = with_altered_field(found.schema, field, params, delete_keys)
            await self._definitions.change(found.with_schema(schema, self._definitions.oracle.allocate()))

    async def add_field(self, database: str, name: str, field: FieldSchema) -> None:
        """Readers get the field before any row can have it: see `elanus.core.added_fields`."""
        async with self._definitions.lock:
            found = await self._completion.settled(database, name)
            await self._change_schema(found, with_added_field(found.schema, field))

    async def add_struct(
        self, database: str, name: str, struct: StructSchema, members: tuple[FieldSchema, ...]
    ) -> None:
        """As `add_field`, for all arrays of a struct array at once."""
        async with self._definitions.lock:
            found = await self._completion.settled(database, name)
            await self._change_schema(found, with_added_struct(found.schema, struct, members))

    async def add_function(
        self,
        database: str,
        name: str,
        field: FieldSchema,
        function: Function,
        index_name: str,
        index_params: Mapping[str, str],
    ) -> None:
        """Readers compute the field for older rows. They get its index with it, if there is one."""
        async with self._definitions.lock:
            found = await self._completion.settled(database, name)
            schema = with_added_function(found.schema, field, function)
            with self._completion.or_later(found.collection_id):
                await self._begin_becoming(found, schema)
                if index_params:
                    added = schema.field(field.name)
                    await self._others.index.create_index(
                        found.collection_id, added, index_name, index_params
                    )
                await self._completion.apply_schema(found.collection_id)

    async def set_function(self, database: str, name: str, function: Function, replaced: str) -> None:
        async with self._definitions.lock:
            found = await self._completion.settled(database, name)
            schema = with_set_function(found.schema, function, replaced)
            await self._change_schema(found, schema)

    async def drop_field(self, database: str, name: str, field: str, field_id: FieldID) -> None:
        async with self._definitions.lock:
            found = await self._completion.settled(database, name)
            schema = with_dropped_field(found.schema, field, field_id, found.properties)
            await self._change_schema(found, schema)

    async def drop_function(self, database: str, name: str, function: str, with_outputs: bool) -> None:
        async with self._definitions.lock:
            found = await self._completion.settled(database, name)
            schema = with_dropped_function(found.schema, function, with_outputs=with_outputs)
            await self._change_schema(found, schema)

    async def truncate_collection(self, collection_id: CollectionID) -> None:
        """Rows that are there now expire at once. Reads as of an earlier moment still find them."""
        async with self._definitions.lock:
            found = self._catalog.by_id(collection_id)
            await self._definitions.change(replace(found, truncated=self._definitions.oracle.allocate()))

    async def _change_schema(self, collection: Collection, schema: CollectionSchema) -> None:
        """Give every role the schema; from here on the change is completed whatever happens."""
        with self._completion.or_later(collection.collection_id):
            await self._begin_becoming(collection, schema)
            await self._completion.apply_schema(collection.collection_id)

    async def _begin_becoming(self, collection: Collection, schema: CollectionSchema) -> None:
        await self._catalog.put(replace(collection, becoming=schema))
