"""Bugs of names and schemas: what a name means to a request, and rows that fit no schema."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from elanus.core.catalog import Collection
from elanus.core.ids import CollectionID
from elanus.core.schema import CollectionSchema
from elanus.rootcoord.lifecycle import Lifecycle
from elanus.rootcoord.names import Names
from elanus.sim.client_verbs import ClientVerbs


def name_resolved_twice(patch: pytest.MonkeyPatch) -> None:
    """Rows are decoded for what the name means, and written to what it means by then; nobody compares."""

    async def write(self: ClientVerbs, name: str, partition: str, rows_for: Any, *, replaces: bool) -> Any:
        meant = await self.collection(name)
        rows = rows_for(meant.view.schema)
        first_id = await self._proxy.coordinators.root.alloc_ids(rows.num_rows)
        await asyncio.sleep(0.5)  # decoding takes its time
        return await self.write_rows(
            await self.collection(name), partition, rows, first_id, replaces=replaces
        )

    patch.setattr(ClientVerbs, "write", write)
    patch.setattr("elanus.proxy.verbs.row_writes.misfit_rows", lambda rows, schema: "")


def switch_not_announced(patch: pytest.MonkeyPatch) -> None:
    """An alias means another collection, and the proxies go on with what they have cached."""

    async def quiet(self: Names, *changed: Collection) -> None:
        await self._catalog.put(*changed)

    alter_alias = Names.alter_alias

    async def alter(self: Names, database: str, collection: str, alias: str) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(self._definitions, "change", quiet.__get__(self))
            await alter_alias(self, database, collection, alias)

    patch.setattr(Names, "alter_alias", alter)


def drop_not_announced(patch: pytest.MonkeyPatch) -> None:
    """A collection leaves the catalog, and no other role is notified."""

    async def quiet(self: Lifecycle, database: str, name: str, _: CollectionID | None = None) -> None:
        found = self._catalog.collection(database, name)
        await self._catalog.put(replace(found, dropped=found.created))

    patch.setattr(Lifecycle, "drop_collection", quiet)


def misfits_taken_in(patch: pytest.MonkeyPatch) -> None:
    """Readers of the log take every write for one that fits."""
    for reader in ("elanus.pipeline.ranges", "elanus.querynode.arrivals"):
        patch.setattr(f"{reader}.checked", lambda message, *_: message)


def definitions_compared_whole(patch: pytest.MonkeyPatch) -> None:
    """After an alteration a node mistakes the next load request for that of another load, and releases."""
    patch.setattr(CollectionSchema, "is_read_as", CollectionSchema.__eq__)


_STUMBLED = frozenset({"LIVE1", "LIVE2", "SEG1", "VIS1", "VIS2", "VIS4"})
BUGS = (
    ("name resolved twice", name_resolved_twice, frozenset({"DUR1"}), 12, 3),
    ("switch not announced", switch_not_announced, frozenset({"DDL2"})),
    ("drop not announced", drop_not_announced, frozenset({"DDL1"}), 12, 2),
    ("misfits taken in", misfits_taken_in, _STUMBLED),
    ("definitions compared whole", definitions_compared_whole, frozenset({"VIS1", "VIS3"}), 12, 207),
)
"""Name, patch, the invariants under which it counts as found."""
