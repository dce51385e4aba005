"""Changes of a collection: its properties, its fields, and the removal of all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elanus.core.errors import CollectionLoaded, InvalidParameter
from elanus.core.field_changes import MMAP, with_added_field
from elanus.core.partition_keys import ISOLATION_PROPERTY, isolates_keys
from elanus.core.schema import FieldSchema
from elanus.core.time_to_live import time_to_live_s
from elanus.proxy.role.cache import CachedCollection
from elanus.proxy.verbs.family import Verbs


class Alterations(Verbs):
    def alter_collection(
        self, database: str, name: str, set_properties: Mapping[str, str], delete_keys: Sequence[str]
    ) -> None:
        time_to_live_s(set_properties)
        if MMAP in {*set_properties, *delete_keys}:
            self._check_not_loaded(database, name)
        if ISOLATION_PROPERTY in {*set_properties, *delete_keys}:
            _check_isolation_change(self._collection(database, name), set_properties)
        self._proxy.define(
            "alter collection",
            lambda: self._proxy.coordinators.root.alter_collection(
                database, name, set_properties, tuple(delete_keys)
            ),
        )

    def alter_field(
        self,
        database: str,
        collection: str,
        field: str,
        set_properties: Mapping[str, str],
        delete_keys: Sequence[str],
    ) -> None:
        if MMAP in {*set_properties, *delete_keys}:
            self._check_not_loaded(database, collection)
        self._proxy.define(
            "alter field",
            lambda: self._proxy.coordinators.root.alter_field(
                database, collection, field, set_properties, tuple(delete_keys)
            ),
        )

    def add_field(self, database: str, collection: str, field: FieldSchema) -> None:
        with_added_field(self._collection(database, collection).view.schema, field)
        root = self._proxy.coordinators.root
        self._proxy.define("add field", lambda: root.add_field(database, collection, field))

    def _check_not_loaded(self, database: str, collection: str) -> None:
        cached = self._collection(database, collection)
        query = self._proxy.coordinators.query
        if self._proxy.define("loads", lambda: query.loads(cached.collection_id)):
            raise CollectionLoaded(
                f"can not alter mmap properties if collection loaded[collection={cached.view.name}]: "
                "release it first"
            )

    def truncate_collection(self, database: str, name: str) -> None:
        """Flush first, so that the segments of earlier rows have no later ones and are removed as a whole."""
        cached = self._collection(database, name)
        coordinators = self._proxy.coordinators

        async def truncate() -> None:
            await coordinators.data.flush(cached.collection_id)
            await coordinators.root.truncate_collection(cached.collection_id)

        self._proxy.define("truncate collection", truncate)


def _check_isolation_change(cached: CachedCollection, properties: Mapping[str, str]) -> None:
    """Raises `InvalidParameter` while an index made for the other mode exists."""
    wanted = isolates_keys(properties, cached.view.schema)
    vectors = {field.field_id for field in cached.view.schema.vector_fields}
    if wanted != cached.isolates_keys and any(index.field_id in vectors for index in cached.indexes):
        raise InvalidParameter(
            "can not alter partition key isolation mode if the collection already has a vector index. "
            f"Please drop the index first: collection {cached.view.name}"
        )
