"""Definitions of indexes: all through the DdQueue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elanus.api.indexcoord import IndexStatus
from elanus.core.catalog import Index
from elanus.core.errors import CollectionLoaded, FieldNotFound, IndexNotFound, InvalidParameter
from elanus.core.index_properties import (
    MMAP_KEY,
    WARMUP_KEY,
    check_index_warmup,
    check_properties,
    property_of,
)
from elanus.core.names import check_index_name
from elanus.core.property_changes import check_property_count
from elanus.core.rate_limits import Action
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.index import (
    check_choice,
    check_field,
    check_mappable,
    check_metric,
    completed,
    ignored_params,
    json_path_of,
    located,
    note_ignored,
    resolve_field_index,
    with_metric,
)
from elanus.proxy.api.indexes import IndexView
from elanus.proxy.verbs.family import VerbFamily


class IndexDefinitions(VerbFamily):
    def create_index(
        self, database: str, collection: str, field_name: str, index_name: str, params: Mapping[str, str]
    ) -> None:
        """Create an index on a field, or on a path of a JSON field.

        An index on a key of the dynamic field may name the key in place of the field.
        """
        cached = self._collection(database, collection)
        self._proxy.admission.allow(Action.DDL, cached)
        check_index_name(index_name)
        field = _index_field(cached.view.schema, field_name)
        params = checked_index(cached.view.schema, field, located(params, field, field_name))
        index = self._proxy.coordinators.index
        self._proxy.define(
            "create index", lambda: index.create_index(cached.collection_id, field, index_name, params)
        )

    def describe_index(
        self, database: str, collection: str, index_name: str, field_name: str
    ) -> Sequence[IndexView]:
        cached = self._collection(database, collection)
        index = self._proxy.coordinators.index
        found = self._proxy.define("describe index", lambda: index.describe(cached.collection_id))
        schema = cached.view.schema  # it may not yet have a field that is being added with its index
        views = [_index_view(status, schema) for status in found if status.index.field_id in schema.by_id]
        chosen = [
            v
            for v in views
            if index_name in ("", v.name) and field_name in ("", v.field_name, schema.by_id[v.field_id].name)
        ]
        if not chosen:
            raise _not_found(collection, index_name)
        return chosen

    def alter_index(
        self,
        database: str,
        collection: str,
        index_name: str,
        properties: Mapping[str, str],
        delete_keys: Sequence[str],
    ) -> None:
        check_properties(properties, delete_keys)
        if not index_name:
            raise InvalidParameter("index name is empty: name the index to alter")
        check_index_name(index_name)
        cached = self._collection(database, collection)
        coordinators = self._proxy.coordinators

        async def alter() -> None:
            if await coordinators.query.loads(cached.collection_id):
                raise CollectionLoaded(
                    "can't alter index on loaded collection, please release the collection first: "
                    f"collection already loaded[collection={collection}]"
                )
            if properties.get(MMAP_KEY, "").lower() == "true":
                declared = await coordinators.index.indexes(cached.collection_id)
                check_mappable(i.params.get("index_type") for i in declared if i.name == index_name)
            await coordinators.index.alter_index(
                cached.collection_id, index_name, properties, tuple(delete_keys)
            )

        self._proxy.define("alter index", alter)

    def drop_index(self, database: str, collection: str, field_name: str, index_name: str) -> None:
        """Drop the matching indexes. If none exists this succeeds, as in the reference.

        Those of scalar fields may be dropped while the collection is loaded: filters then read the columns.
        """
        cached = self._collection(database, collection)
        coordinators = self._proxy.coordinators
        self._proxy.admission.allow(Action.DDL, cached)
        fields = cached.view.schema.by_id

        def is_meant(index: Index) -> bool:
            field = fields.get(index.field_id)
            if field is None or index_name not in ("", index.name):
                return False
            return field_name in ("", field.name, _shown_name(index, field))

        async def drop() -> None:
            meant = [i for i in await coordinators.index.indexes(cached.collection_id) if is_meant(i)]
            has_vectors = any(fields[index.field_id].is_searched for index in meant)
            if has_vectors and await coordinators.query.loads(cached.collection_id):
                raise InvalidParameter(
                    f"vector index cannot be dropped on loaded collection: {cached.collection_id}: "
                    "index cannot be dropped, collection is loaded, please release it first"
                )
            for index in meant:
                await coordinators.index.drop_index(cached.collection_id, index.index_id)

        self._proxy.define("drop index", drop)


def checked_index(
    schema: CollectionSchema, field: FieldSchema, params: Mapping[str, str]
) -> Mapping[str, str]:
    """Return an index's parameters, with its type and metric. Raises `InvalidParameter`."""
    check_property_count(params, f"the index on field {field.name}")
    function = schema.function_of(field)
    computed_by = "" if function is None else function.kind
    params = completed(with_metric(params, computed_by), field)
    spec = resolve_field_index(params, field)
    if (warmup := property_of(params, WARMUP_KEY)) is not None:
        check_index_warmup(warmup)
    check_metric(spec, computed_by)
    check_choice(spec)
    check_field(spec, field)
    note_ignored(spec.declared_type, ignored_params(params, spec))
    return params


def _index_field(schema: CollectionSchema, name: str) -> FieldSchema:
    field = schema.by_name.get(name) or schema.dynamic_field
    if field is None:
        raise FieldNotFound(f"cannot create index on non-exist field: {name}")
    return field


def _not_found(collection: str, index_name: str) -> IndexNotFound:
    wanted = f"[indexName={index_name}]" if index_name else f"[collection={collection}]"
    return IndexNotFound(f"index not found{wanted}")


def _shown_name(index: Index, field: FieldSchema) -> str:
    """The field as an index's description names it: of the dynamic field, the key."""
    path = json_path_of(resolve_field_index(index.params, field), field) if field.is_dynamic else None
    return str(path[0]) if path else field.name


def _index_view(status: IndexStatus, schema: CollectionSchema) -> IndexView:
    index = status.index
    return IndexView(
        index_id=index.index_id,
        name=index.name,
        field_id=index.field_id,
        field_name=_shown_name(index, schema.by_id[index.field_id]),
        params=index.params,
        state=status.state.value,
        fail_reason=status.fail_reason,
        total_rows=status.total_rows,
        indexed_rows=status.indexed_rows,
        pending_rows=status.pending_rows,
    )
