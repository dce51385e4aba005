"""Restores by name, as the proxy makes them of datacoord's calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from elanus.api.backups import ForeignRows
from elanus.core.errors import SnapshotNotFound
from elanus.proxy.verbs.backups import Backups

ROWS = ForeignRows(cast(Any, None), 0, "k", 1000)


class Received:
    """Datacoord with the keys of restores, by the ids of their pins."""

    def __init__(self) -> None:
        self.keys: dict[int, str] = {}

    async def receive_rows(self, rows: ForeignRows) -> int:
        self.keys[len(self.keys) + 1] = rows.key
        return len(self.keys)

    async def check_received(self, snapshot_id: int, key_begins: str = "") -> int:
        if not self.keys[snapshot_id].startswith(key_begins):
            raise SnapshotNotFound("another restore's")
        return 7


async def test_what_one_restore_has_received_makes_no_other_collection() -> None:
    """The ids of restores follow each other, and a privilege is on the name that a call has."""
    data, root = Received(), AsyncMock()
    root.list_collections.return_value = ()
    proxy = SimpleNamespace(coordinators=SimpleNamespace(root=root, data=data))
    backups = Backups(lambda: cast(Any, proxy))
    pin_id = cast(int, await backups._received("default", "secret", ROWS))
    for database, collection in (("shop", "secret"), ("default", "books"), ("default", "secre")):
        with pytest.raises(SnapshotNotFound):
            await backups._completed(database, collection, pin_id)
    root.clone_collection.assert_not_called()
