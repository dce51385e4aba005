"""Changes of a collection: its properties, its fields, and the removal of all rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from elanus.api.querycoord import QueryCoordApi
from elanus.core.dropped_fields import with_dropped_field
from elanus.core.errors import CollectionLoaded, IndexConflict, InvalidParameter
from elanus.core.field_changes import (
    asks_for_dynamic_field,
    field_needs_release,
    param_name,
    with_added_field,
    with_added_struct,
    with_altered_field,
)
from elanus.core.function_changes import with_added_function, with_dropped_function, with_set_function
from elanus.core.functions import Function
from elanus.core.ids import CollectionID, FieldID
from elanus.core.moments import check_timezone
from elanus.core.names import check_index_name
from elanus.core.partition_keys import ISOLATION_PROPERTY, isolates_keys
from elanus.core.property_changes import (
    changed_properties,
    check_property_change,
    collection_needs_release,
)
from elanus.core.rate_limits import Action, check_properties
from elanus.core.schema import FieldSchema
from elanus.core.schema_rules import with_dynamic_field
from elanus.core.segment_filter import property_ratio
from elanus.core.sent_keys import check_takes_sent_keys
from elanus.core.structs import StructSchema
from elanus.core.target_recall import property_target
from elanus.core.time_to_live import (
    TTL_FIELD_PROPERTY,
    TTL_PROPERTY,
    check_ttl_change,
    checked_ttl_field,
    time_to_live_s,
)
from elanus.core.types import Family
from elanus.core.warmup import check_collection_warmups
from elanus.proxy.role.cache import CachedCollection
from elanus.proxy.verbs.family import VerbFamily
from elanus.proxy.verbs.indexes import checked_index
from elanus.text import check_text_field

_LOOK_S = 0.05
_LOOKS = 200


class Alterations(VerbFamily):
    def alter_collection(
        self, database: str, name: str, set_properties: Mapping[str, str], delete_keys: Sequence[str]
    ) -> None:
        check_property_change(set_properties, delete_keys)
        time_to_live_s(set_properties)
        check_timezone(set_properties)
        check_collection_warmups(set_properties)
        check_properties(set_properties)
        property_target(set_properties)
        property_ratio(set_properties)
        schema = self._collection(database, name).view.schema
        turns_on = asks_for_dynamic_field(schema, set_properties, delete_keys)
        if turns_on is not None:
            if turns_on:
                self.add_field(database, name, with_dynamic_field(())[-1])
            return
        self._check_released(database, name, collection_needs_release(set_properties, delete_keys))
        check_takes_sent_keys(set_properties, schema)
        if ISOLATION_PROPERTY in {*set_properties, *delete_keys}:
            _check_isolation_change(self._collection(database, name), set_properties)
        root = self._proxy.coordinators.root

        def alter() -> Coroutine[Any, Any, None]:
            return root.alter_collection(database, name, set_properties, tuple(delete_keys))

        touched = {*set_properties, *delete_keys}
        if not touched.isdisjoint({TTL_PROPERTY, TTL_FIELD_PROPERTY}):
            view = self._collection(database, name).view
            left = changed_properties(view.properties, {}, delete_keys)
            check_ttl_change(set_properties, left)
            checked_ttl_field({**left, **set_properties}, view.schema)
        if TTL_FIELD_PROPERTY in touched:
            self._change_schema(database, name, alter)
        else:
            self._proxy.define("alter collection", alter)

    def alter_field(
        self,
        database: str,
        collection: str,
        field: str,
        set_properties: Mapping[str, str],
        delete_keys: Sequence[str],
    ) -> None:
        set_properties = {param_name(key): value for key, value in set_properties.items()}
        delete_keys = tuple(map(param_name, delete_keys))
        self._check_released(database, collection, field_needs_release(set_properties, delete_keys))
        schema = self._collection(database, collection).view.schema
        altered = with_altered_field(schema, field, set_properties, delete_keys).by_name.get(field)
        if altered is not None and altered.kind.family is Family.TEXT:
            check_text_field(altered, schema.by_name)
        self._proxy.define(
            "alter field",
            lambda: self._proxy.coordinators.root.alter_field(
                database, collection, field, set_properties, tuple(delete_keys)
            ),
        )

    def add_field(self, database: str, collection: str, field: FieldSchema) -> None:
        self._proxy.admission.allow(Action.DDL, self._collection(database, collection))
        with_added_field(self._collection(database, collection).view.schema, field)
        root = self._proxy.coordinators.root
        self._change_schema(database, collection, lambda: root.add_field(database, collection, field))

    def add_struct(
        self, database: str, collection: str, struct: StructSchema, members: tuple[FieldSchema, ...]
    ) -> None:
        cached = self._collection(database, collection)
        self._proxy.admission.allow(Action.DDL, cached)
        with_added_struct(cached.view.schema, struct, members)
        root = self._proxy.coordinators.root
        self._change_schema(
            database, collection, lambda: root.add_struct(database, collection, struct, members)
        )

    def add_function(
        self,
        database: str,
        collection: str,
        field: FieldSchema,
        function: Function,
        index_name: str,
        index_params: Mapping[str, str],
    ) -> None:
        cached = self._collection(database, collection)
        self._proxy.admission.allow(Action.DDL, cached)
        schema = with_added_function(cached.view.schema, field, function)
        if not index_params:
            raise InvalidParameter(
                f"index params of the function output field {field.name} are missing: name its index_type"
            )
        check_index_name(index_name)
        params = checked_index(schema, schema.field(field.name), index_params)
        root = self._proxy.coordinators.root
        self._change_schema(
            database,
            collection,
            lambda: root.add_function(database, collection, field, function, index_name, params),
        )

    def set_function(self, database: str, collection: str, function: Function, replaced: str = "") -> None:
        cached = self._collection(database, collection)
        self._proxy.admission.allow(Action.DDL, cached)
        schema = with_set_function(cached.view.schema, function, replaced)
        self._proxy.embedder.check_function(schema, function)
        root = self._proxy.coordinators.root
        self._change_schema(
            database, collection, lambda: root.set_function(database, collection, function, replaced)
        )

    def drop_field(self, database: str, collection: str, field: str, field_id: int = 0) -> None:
        cached = self._collection(database, collection)
        self._proxy.admission.allow(Action.DDL, cached)
        number = FieldID(field_id)
        with_dropped_field(cached.view.schema, field, number, cached.view.properties)
        root = self._proxy.coordinators.root
        self._change_schema(
            database, collection, lambda: root.drop_field(database, collection, field, number)
        )

    def drop_function(self, database: str, collection: str, function: str, *, with_outputs: bool) -> None:
        cached = self._collection(database, collection)
        self._proxy.admission.allow(Action.DDL, cached)
        with_dropped_function(cached.view.schema, function, with_outputs=with_outputs)
        root = self._proxy.coordinators.root
        self._change_schema(
            database, collection, lambda: root.drop_function(database, collection, function, with_outputs)
        )

    def _change_schema(
        self, database: str, collection: str, change: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Change the schema, and wait until the collection is served with it."""
        cached = self._collection(database, collection)
        self._proxy.define("change schema", change)
        self._proxy.call(_served_again(self._proxy.coordinators.query, cached.collection_id))

    def _check_released(self, database: str, collection: str, change: str | None) -> None:
        """Raise `CollectionLoaded` for a change that needs a release. ``change``: None if it needs none."""
        if change is None:
            return
        cached = self._collection(database, collection)
        query = self._proxy.coordinators.query
        if self._proxy.define("loads", lambda: query.loads(cached.collection_id)):
            raise CollectionLoaded(
                f"can not {change} if collection loaded: collection already loaded"
                f"[collection={cached.view.name}]: release it first"
            )

    def truncate_collection(self, database: str, name: str) -> None:
        """Flush first, so that the segments of earlier rows have no later ones and are removed as a whole."""
        cached = self._collection(database, name)
        for action in (Action.DDL, Action.WRITING):
            self._proxy.admission.allow(action, cached)
        coordinators = self._proxy.coordinators

        async def truncate() -> None:
            await coordinators.data.flush(cached.collection_id)
            await coordinators.root.truncate_collection(cached.collection_id)

        self._proxy.define("truncate collection", truncate)


async def _served_again(query: QueryCoordApi, collection_id: CollectionID) -> None:
    """Wait until the query nodes have loaded the collection again, but not forever: the field is there."""
    for _ in range(_LOOKS):
        statuses = await query.loads(collection_id)
        if all(percentage == 100 for status in statuses for percentage in status.percentages.values()):
            return
        await asyncio.sleep(_LOOK_S)


def _check_isolation_change(cached: CachedCollection, properties: Mapping[str, str]) -> None:
    """Raises `IndexConflict` while an index made for the other mode exists."""
    wanted = isolates_keys(properties, cached.view.schema)
    vectors = {field.field_id for field in cached.view.schema.searched_fields}
    if wanted != cached.isolates_keys and any(index.field_id in vectors for index in cached.indexes):
        names = ", ".join(index.name for index in cached.indexes if index.field_id in vectors)
        raise IndexConflict(
            "can not alter partition key isolation mode if the collection already has a vector index. "
            f"Please drop the index first: index duplicates[indexName={names}]"
        )
