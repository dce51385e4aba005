"""Dataclasses in the metadata store: read back as they were, or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import pytest

from elanus.core.ids import CollectionID
from elanus.core.timestamps import MAX_TIMESTAMP, Timestamp
from elanus.meta.memory import MemoryMeta
from elanus.meta.port import CompareFailed, Put
from elanus.meta.typed import CorruptMeta, absent, get_as, list_as, put


class Colour(IntEnum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Part:
    name: str
    size: float | None = None


@dataclass(frozen=True)
class Thing:
    thing_id: CollectionID
    created: Timestamp
    colour: Colour
    parts: tuple[Part, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)


THING = Thing(CollectionID(7), MAX_TIMESTAMP, Colour.BLUE, (Part("ä", 1.5), Part("b")), {"k": "v"})


def test_a_value_comes_back_equal() -> None:
    async def run() -> None:
        store = MemoryMeta()
        revision = await store.txn(
            [put("t/7", THING), put("t/8", Thing(CollectionID(8), Timestamp(1), Colour.RED))]
        )
        found = await get_as(store, "t/7", Thing)
        assert found is not None
        assert (found.key, found.value, found.revision) == ("t/7", THING, revision)
        assert isinstance(found.value.colour, Colour)
        assert [record.value.thing_id for record in await list_as(store, "t/", Thing)] == [7, 8]
        assert await get_as(store, "t/9", Thing) is None

    asyncio.run(run())


def test_a_record_knows_how_to_stay_unchanged() -> None:
    async def run() -> None:
        store = MemoryMeta()
        await store.txn([put("t", THING)], [absent("t")])
        found = await get_as(store, "t", Thing)
        assert found is not None
        await store.txn([put("t", THING)], [found.unchanged])
        for stale in (found.unchanged, absent("t")):
            with pytest.raises(CompareFailed):
                await store.txn([put("t", THING)], [stale])

    asyncio.run(run())


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"{",
        b"null",
        b'{"thing_id":7,"created":1}',
        b'{"thing_id":"7","created":1,"colour":1}',
        b'{"thing_id":7,"created":1.5,"colour":1}',
        b'{"thing_id":7,"created":1,"colour":3}',
        b'{"thing_id":7,"created":1,"colour":1,"parts":[{"name":null}]}',
    ],
)
def test_what_is_no_such_value_is_refused_by_name(stored: bytes) -> None:
    async def run() -> None:
        store = MemoryMeta()
        await store.txn([Put("t/7", stored)])
        with pytest.raises(CorruptMeta, match="t/7 does not hold a Thing"):
            await get_as(store, "t/7", Thing)
        with pytest.raises(CorruptMeta, match="t/7"):
            await list_as(store, "t/", Thing)

    asyncio.run(run())


def test_fields_of_a_newer_release_are_ignored() -> None:
    async def run() -> None:
        store = MemoryMeta()
        await store.txn([Put("t", b'{"thing_id":7,"created":1,"colour":1,"later":{"x":1}}')])
        found = await get_as(store, "t", Thing)
        assert found is not None
        assert found.value == Thing(CollectionID(7), Timestamp(1), Colour.RED)

    asyncio.run(run())
