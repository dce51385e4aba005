"""The indexes of the fake verbs: their definitions, each finished at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from elanus.core.errors import IndexNotFound
from elanus.core.ids import IndexID
from elanus.core.index_properties import altered
from elanus.proxy.api.indexes import IndexView


class FakeIndexes:
    """A part of `fake_verbs.FakeVerbs`. ``altered``: collection, index, properties, dropped properties."""

    _held: Any
    _ids: Any
    collection_rows: Any

    def __init__(self) -> None:
        self.altered: list[tuple[str, str, Mapping[str, str], Sequence[str]]] = []
        super().__init__()

    def create_index(
        self, database: str, collection: str, field_name: str, index_name: str, params: Mapping[str, str]
    ) -> None:
        held = self._held(database, collection)
        target = held.view.schema.field(field_name)
        rows = self.collection_rows(database, collection)
        name = index_name or field_name
        held.indexes[name] = IndexView(
            index_id=IndexID(next(self._ids)),
            name=name,
            field_id=target.field_id,
            field_name=field_name,
            params=dict(params),
            state="Finished",
            fail_reason="",
            total_rows=rows,
            indexed_rows=rows,
            pending_rows=0,
        )

    def describe_index(
        self, database: str, collection: str, index_name: str, field_name: str
    ) -> Sequence[IndexView]:
        found = [
            index
            for index in self._held(database, collection).indexes.values()
            if index_name in ("", index.name) and field_name in ("", index.field_name)
        ]
        if not found:
            raise IndexNotFound(f"index not found[collection={collection}]")
        return found

    def alter_index(
        self,
        database: str,
        collection: str,
        index_name: str,
        properties: Mapping[str, str],
        delete_keys: Sequence[str],
    ) -> None:
        self.altered.append((collection, index_name, dict(properties), tuple(delete_keys)))
        held = self._held(database, collection)
        if index_name not in held.indexes:
            raise IndexNotFound(f"index not found[index={index_name}][collection={collection}]")
        index = held.indexes[index_name]
        held.indexes[index_name] = replace(index, params=altered(index.params, properties, delete_keys))

    def drop_index(self, database: str, collection: str, field_name: str, index_name: str) -> None:
        held = self._held(database, collection)
        for name, index in list(held.indexes.items()):
            if index_name in ("", name) and field_name in ("", index.field_name):
                del held.indexes[name]
