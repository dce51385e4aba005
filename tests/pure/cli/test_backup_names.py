"""The collections of a backup are those that were listed at first, whatever happens to their names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from elanus.api.backups import BackupSource, ServerContents
from elanus.api.connector import SnapshotLease
from elanus.cli.backups import Held, Wanted, _held
from elanus.core.errors import CollectionNotFound, Unavailable
from elanus.core.ids import CollectionID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp

MOMENT = Timestamp(1000)
ALL = Wanted("", "", "", 60_000)


class Server:
    """Implements the calls of `BackupApi` with which collections are held. ``then``: called once, after the
    first of them is held."""

    def __init__(self, *names: str) -> None:
        self.collections = [
            BackupSource("shop", name, CollectionID(number), Timestamp(number))
            for number, name in enumerate(names, 1)
        ]
        self.then: Callable[[], None] = lambda: None
        self.busy = 0
        """So many calls end before the rows are in files."""
        self.held: list[tuple[int, Timestamp]] = []
        self.released: list[int] = []

    def rename(self, **names: str) -> None:
        self.collections = [replace(one, name=names.get(one.name, one.name)) for one in self.collections]

    def create_again(self, name: str) -> None:
        kept = [one for one in self.collections if one.name != name]
        self.collections = [*kept, BackupSource("shop", name, CollectionID(99), Timestamp(MOMENT + 1))]

    async def contents(self) -> ServerContents:
        return ServerContents((), tuple(self.collections), 100)

    async def hold(
        self, database: str, name: str, number: CollectionID, moment: Timestamp, lease_ms: int
    ) -> SnapshotLease:
        if not any((one.name, one.collection_id) == (name, number) for one in self.collections):
            raise CollectionNotFound(f"collection not found[collection={name}]")
        if self.busy:
            self.busy -= 1
            raise Unavailable("rows of v0 are still in the log alone after 60 s")
        self.held.append((number, moment))
        then, self.then = self.then, lambda: None
        then()
        return SnapshotLease(number, "file:///s", "p", MOMENT, 1)

    async def release(self, snapshot_id: int) -> None:
        self.released.append(snapshot_id)


def held(server: Server, sources: list[BackupSource], wanted: Wanted = ALL) -> list[Held]:
    return asyncio.run(_held(server, sources, wanted))  # type: ignore[arg-type]


def test_a_collection_that_is_created_again_under_its_name_is_left_out() -> None:
    server = Server("a", "b", "c")
    server.then = lambda: server.create_again("b")
    found = held(server, server.collections)
    assert [one.source.name for one in found] == ["a", "c"]
    assert server.held == [(1, NO_TIMESTAMP), (3, MOMENT)]


def test_rows_that_take_minutes_to_be_written_to_files_are_waited_for() -> None:
    server = Server("a")
    server.busy = 4
    assert [one.source.name for one in held(server, server.collections)] == ["a"]
    server.busy = 5
    with pytest.raises(Unavailable, match="still in the log alone"):
        held(server, server.collections)


@pytest.mark.parametrize("is_early", [True, False])
def test_collections_that_swap_their_names_are_both_there_under_the_first_ones(is_early: bool) -> None:
    server = Server("a", "b", "c")
    sources = list(server.collections)
    swap = {"b": "c", "c": "b_old"}
    if is_early:
        server.rename(**swap, a="a_old")
    else:
        server.then = lambda: server.rename(**swap)
    found = held(server, sources)
    assert [one.source for one in found] == sources
    assert [one.lease.snapshot_id for one in found] == [1, 2, 3]
    assert [moment for _, moment in server.held] == [NO_TIMESTAMP, MOMENT, MOMENT]


def test_the_only_collection_that_is_wanted_has_to_be_there() -> None:
    server = Server("a")
    sources = list(server.collections)
    server.create_again("a")
    with pytest.raises(CollectionNotFound):
        held(server, sources, replace(ALL, collection="a"))
    assert held(server, sources) == []
