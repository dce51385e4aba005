"""The front's indexes after they are made, as the wire tests need them: altered and dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


class FakeIndexes:
    """``altered``: collection, index, properties, dropped properties."""

    _held: Callable[[str, str], Any]

    def __init__(self) -> None:
        self.altered: list[tuple[str, str, Mapping[str, str], Sequence[str]]] = []
        super().__init__()

    def alter_index(
        self,
        database: str,
        collection: str,
        index_name: str,
        properties: Mapping[str, str],
        delete_keys: Sequence[str],
    ) -> None:
        self.altered.append((collection, index_name, dict(properties), tuple(delete_keys)))

    def drop_index(self, database: str, collection: str, field_name: str, index_name: str) -> None:
        held = self._held(database, collection)
        for name, index in list(held.indexes.items()):
            if index_name in ("", name) and field_name in ("", index.field_name):
                del held.indexes[name]
