"""The index coordinator's part for properties of indexes, as tests of the proxy see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elanus.core.ids import CollectionID


class FakeAltering:
    calls: Any

    async def alter_index(
        self,
        collection_id: CollectionID,
        name: str,
        properties: Mapping[str, str],
        delete_keys: tuple[str, ...],
    ) -> None:
        self.calls.note("alter_index", (collection_id, name, dict(properties), delete_keys))
