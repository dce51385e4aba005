"""Restores by name, as the proxy makes them of datacoord's calls."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from fakes import collection

from elanus.api.backups import ForeignRows
from elanus.core.catalog import Collection
from elanus.core.dropped_fields import with_dropped_field
from elanus.core.errors import ElanusError, SnapshotNotFound
from elanus.core.ids import FieldID, PartitionID
from elanus.proxy.verbs.backups import Backups, check_received

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
    for database, name in (("shop", "secret"), ("default", "books"), ("default", "secre")):
        with pytest.raises(SnapshotNotFound):
            await backups._completed(database, name, pin_id)
    root.clone_collection.assert_not_called()


def damaged(**changed: Any) -> Collection:
    """A definition with a changed schema."""
    found = collection()
    return replace(found, schema=replace(found.schema, **changed))


def test_a_definition_that_the_server_made_is_received() -> None:
    found = collection(shards=2, partitions=(PartitionID(1), PartitionID(2)))
    check_received(found)
    more = replace(found.schema.fields[-1], name="more", field_id=FieldID(150))
    grown = replace(found.schema, fields=(*found.schema.fields, more))
    check_received(replace(found, name="copy", schema=with_dropped_field(grown, "more")))


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        (damaged(name="1st"), "Invalid collection name"),
        (damaged(fields=()), "primary key is not specified"),
        (damaged(fields=(*collection().schema.fields, collection().schema.fields[0])), "duplicated field"),
        (
            damaged(fields=tuple(replace(f, field_id=FieldID(100)) for f in collection().schema.fields)),
            "have one id",
        ),
        (damaged(enable_dynamic=not collection().schema.enable_dynamic), "if and only if"),
        (replace(collection(), vchannels=()), "shards_num must be in"),
        (replace(collection(), vchannels=tuple(f"c_{n}" for n in range(99))), "maximum shards's number"),
        (replace(collection(), partitions=()), "has 0 partitions"),
        (replace(collection(), partitions=collection().partitions * 2), "one name or one id"),
        (
            replace(collection(), partitions=(replace(collection().partitions[0], name="a b"),)),
            "Invalid partition name",
        ),
    ],
)
def test_a_definition_that_breaks_the_rules_is_refused(definition: Collection, said: str) -> None:
    """By the verb, before anything is asked of a coordinator."""
    snapshot = cast(Any, SimpleNamespace(collection=definition))
    with pytest.raises(ElanusError, match=said):
        Backups(lambda: cast(Any, None)).receive("default", "books", ForeignRows(snapshot, 0, "k", 1000))
