"""Databases, names, aliases and properties: what may be called what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from fakes import FakeIndexCoord, settle
from giving_up import cut_off
from root_bench import Root, new, refused, started

from elanus.core.errors import (
    AliasAlreadyExists,
    AliasConflict,
    AliasNotFound,
    CollectionLimitReached,
    CollectionNotFound,
    DatabaseLimitReached,
    DatabaseNotFound,
    ElanusError,
    InvalidParameter,
    RecordTooLarge,
    Unavailable,
)
from elanus.core.ids import CollectionID, FieldID
from elanus.core.schema import DataType, FieldSchema
from elanus.proxy.role.cache import MetaCache
from elanus.rootcoord import names

# databases


async def test_databases_come_and_go_and_keep_their_names_apart() -> None:
    _, root = await started("c")
    await root.create_database("books", {"a": "1", "b": "2"})
    made = await root.create_collection(new("c", database="books"))
    assert made.collection_id != (await root.describe_collection("default", "c")).collection_id
    assert [d.name for d in await root.list_databases()] == ["default", "books"]
    assert [c.name for c in await root.list_collections("books")] == ["c"]
    assert len(await root.list_collections("")) == 2
    await refused(root.drop_database("books"), InvalidParameter, "not empty")
    await root.drop_collection("books", "c")
    await root.drop_database("books")
    await refused(root.describe_collection("books", "c"), DatabaseNotFound)
    await root.stop()


async def test_a_collection_takes_the_time_zone_of_its_database() -> None:
    _, root = await started()
    await root.create_database("books", {"timezone": "Asia/Tokyo", "a": "1"})

    async def properties(name: str, *moments: FieldSchema, **own: str) -> dict[str, str]:
        plain = new(name, database="books")
        schema = replace(plain.schema, fields=(*plain.schema.fields, *moments))
        made = await root.create_collection(replace(plain, schema=schema, properties=own))
        return dict(made.properties)

    moment = FieldSchema(FieldID(0), "t", DataType.TIMESTAMPTZ)
    assert await properties("c", moment) == {"timezone": "Asia/Tokyo"}
    assert await properties("d", moment, timezone="UTC") == {"timezone": "UTC"}
    assert await properties("e") == {"timezone": "Asia/Tokyo"}  # a field of moments may be added later
    await root.stop()


async def test_rules_of_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "DATABASES_MAX", 2)
    _, root = await started()
    await refused(root.drop_database("default"), InvalidParameter, "default")
    await refused(root.drop_database("nope"), DatabaseNotFound)
    await root.create_database("books", {"a": "1", "b": "2"})
    await refused(root.create_database("books", {}), InvalidParameter, "already exist")
    await refused(root.create_database("more", {}), DatabaseLimitReached)
    await root.alter_database("books", {"b": "3", "c": "4"}, ("a",))
    assert dict((await root.list_databases())[1].properties) == {"b": "3", "c": "4"}
    await root.stop()


# names


async def test_renaming_changes_record_and_schema_and_empties_caches() -> None:
    bench, root = await started("c")
    cid = (await root.describe_collection("default", "c")).collection_id
    await root.create_alias("default", "c", "a")
    bench.proxy.calls.asked.clear()
    await root.rename_collection("default", "c", "d", "")
    found = await root.describe_collection("default", "d")
    assert (found.collection_id, found.schema.name) == (cid, "d")
    assert await root.describe_collection("default", "a") == found
    assert bench.proxy.calls.of("invalidate_collection") == [cid]
    await refused(root.describe_collection("default", "c"), CollectionNotFound)
    await root.stop()


async def test_a_collection_moves_to_another_database_only_without_aliases() -> None:
    _, root = await started("c")
    await root.create_database("books", {})
    await root.create_alias("default", "c", "a")
    await refused(root.rename_collection("default", "c", "c", "books"), InvalidParameter, "drop all aliases")
    await root.drop_alias("default", "a")
    await root.rename_collection("default", "c", "c", "books")
    assert [c.name for c in await root.list_collections("books")] == ["c"]
    assert await root.list_collections("default") == ()
    await root.stop()


async def test_a_collection_moves_into_a_database_that_has_room() -> None:
    _, root = await started("a", "b")
    await root.create_database("books", {"database.max.collections": "1"})
    await root.rename_collection("default", "a", "a", "books")
    full = root.rename_collection("default", "b", "b", "books")
    await refused(full, CollectionLimitReached, r"dbName=books.*limit=1")
    await root.rename_collection("books", "a", "c", "")
    assert [c.name for c in await root.list_collections("books")] == ["c"], "a new name takes no room"
    await root.stop()


@pytest.mark.parametrize(
    ("old", "new_", "database", "error"),
    [
        ("nope", "x", "", CollectionNotFound),
        ("a", "x", "", InvalidParameter),
        ("c", "d", "", InvalidParameter),
        ("c", "a", "", InvalidParameter),
        ("c", "x", "nope", DatabaseNotFound),
    ],
)
async def test_names_that_cannot_be_taken(
    old: str, new_: str, database: str, error: type[ElanusError]
) -> None:
    _, root = await started("c", "d")
    await root.create_alias("default", "c", "a")
    before = await root.list_collections("")
    await refused(root.rename_collection("default", old, new_, database), error)
    assert await root.list_collections("") == before
    await root.stop()


async def test_a_rename_changes_the_name_or_the_database() -> None:
    _, root = await started("c")
    for database in ("", "default"):
        text = "collection name or database name should be different"
        await refused(root.rename_collection("default", "c", "c", database), InvalidParameter, text)
    await root.stop()


async def test_an_alias_is_a_second_name() -> None:
    bench, root = await started("c", "d")
    await root.create_alias("default", "c", "a")
    await root.create_alias("default", "c", "a")  # the same again
    assert (await root.describe_collection("default", "a")).name == "c"
    bench.proxy.calls.asked.clear()
    await root.alter_alias("default", "d", "a")
    assert (await root.describe_collection("default", "a")).name == "d"
    assert (await root.describe_collection("default", "c")).aliases == ()
    ids = [(await root.describe_collection("default", n)).collection_id for n in ("c", "d")]
    assert bench.proxy.calls.of("invalidate_collection") == ids, "both are forgotten"
    await root.drop_alias("default", "a")
    await root.drop_alias("default", "a")  # dropping what is not there succeeds
    await refused(root.describe_collection("default", "a"), CollectionNotFound)
    await root.stop()


async def test_rules_of_aliases() -> None:
    _, root = await started("c", "d")
    await root.create_alias("default", "c", "a")
    await refused(root.create_alias("default", "d", "a"), AliasAlreadyExists)
    await refused(root.create_alias("default", "d", "c"), AliasConflict)
    await refused(root.create_alias("default", "a", "b"), CollectionNotFound)
    await refused(root.alter_alias("default", "a", "a"), CollectionNotFound)
    await refused(root.alter_alias("default", "d", "nope"), AliasNotFound)
    await refused(root.alter_alias("default", "d", "c"), AliasConflict)
    await refused(root.create_alias("default", "nope", "b"), CollectionNotFound)
    assert {c.name: c.aliases for c in await root.list_collections("default")} == {"c": ("a",), "d": ()}
    await root.stop()


async def test_properties_are_set_and_deleted_through_any_name() -> None:
    _, root = await started("c")
    await root.create_alias("default", "c", "a")
    await root.alter_collection("default", "a", {"ttl": "7", "x": "1"}, ())
    await root.alter_collection("default", "c", {"ttl": "8"}, ("x",))
    assert dict((await root.describe_collection("default", "c")).properties) == {"ttl": "8"}
    await root.stop()


# the caller gives up

Definition = Callable[[Root], Coroutine[Any, Any, None]]
DEFINITIONS: dict[str, Definition] = {
    "create alias": lambda root: root.create_alias("default", "c", "b"),
    "alter alias": lambda root: root.alter_alias("default", "d", "a"),
    "drop alias": lambda root: root.drop_alias("default", "a"),
    "create partition": lambda root: root.create_partition("default", "c", "p"),
    "alter collection": lambda root: root.alter_collection("default", "c", {"x": "1"}, ()),
    "rename collection": lambda root: root.rename_collection("default", "c", "e", ""),
    "drop collection": lambda root: root.drop_collection("default", "d"),
    "drop partition": lambda root: root.drop_partition("default", "c", "q"),
}
MAY_COME_AGAIN = ("create alias", "alter alias", "drop alias", "create partition")
"""Those that succeed where there is nothing left to change."""


@pytest.mark.parametrize("name", sorted(DEFINITIONS))
async def test_the_proxies_are_notified_of_a_definition_whose_caller_gave_up(name: str) -> None:
    bench, root = await started("c", "d")
    await root.create_alias("default", "c", "a")
    await root.create_partition("default", "c", "q")
    c, d = (c.collection_id for c in await root.list_collections("default"))
    bench.proxy.calls.asked.clear()
    await cut_off(bench.meta, DEFINITIONS[name](root))
    concerned = {"alter alias": [c, d], "drop collection": [d]}.get(name, [c])
    assert bench.proxy.calls.of("invalidate_collection") == concerned
    await root.stop()


@pytest.mark.parametrize("name", MAY_COME_AGAIN)
async def test_the_second_try_succeeds_when_the_proxies_know_of_the_first(name: str) -> None:
    bench, root = await started("c", "d")
    await root.create_alias("default", "c", "a")
    bench.proxy.calls.failing["invalidate_collection"] = Unavailable("the call was lost")
    await cut_off(bench.meta, DEFINITIONS[name](root))
    again = asyncio.ensure_future(DEFINITIONS[name](root))
    await asyncio.sleep(3)
    assert not again.done()
    bench.proxy.calls.failing.clear()
    await again
    bench.proxy.calls.failing["invalidate_collection"] = Unavailable("the call was lost")
    await cut_off(bench.meta, root.alter_collection("default", "c", {"x": "2"}, ()))
    await refused(DEFINITIONS[name](root), Unavailable, "an earlier change")
    await root.stop()


@pytest.mark.parametrize(
    "take",
    [
        lambda root: root.create_collection(new("c")),
        lambda root: root.create_alias("default", "d", "c"),
        lambda root: root.rename_collection("default", "d", "c", ""),
    ],
    ids=["create", "alias", "rename"],
)
async def test_a_name_is_taken_when_no_proxy_writes_to_its_former_collection(take: Definition) -> None:
    bench, root = await started("c", "d")
    cache = MetaCache(root, FakeIndexCoord())  # type: ignore[arg-type]
    former = (await cache.fill("default", "c")).collection_id
    lost = True

    async def invalidate(collection_id: CollectionID) -> None:
        if lost:
            raise Unavailable("the call was lost")
        cache.invalidate(collection_id)

    bench.proxy.invalidate_collection = invalidate  # type: ignore[method-assign]
    await cut_off(bench.meta, root.rename_collection("default", "c", "archive", ""))
    taking = asyncio.ensure_future(take(root))
    await asyncio.sleep(3)
    assert not taking.done()
    assert (await root.describe_collection("default", "archive")).collection_id == former
    await refused(root.describe_collection("default", "c"), CollectionNotFound)
    lost = False
    await taking
    await settle()
    assert cache.get("default", "c") is None, "and learns who has it now"
    await root.stop()


async def test_a_partition_takes_a_name_when_no_proxy_writes_to_the_one_that_had_it() -> None:
    bench, root = await started("c")
    await root.create_partition("default", "c", "p")
    bench.proxy.calls.failing["invalidate_collection"] = Unavailable("the call was lost")
    await cut_off(bench.meta, root.drop_partition("default", "c", "p"))
    taking = asyncio.ensure_future(root.create_partition("default", "c", "p"))
    await asyncio.sleep(3)
    assert not taking.done()
    bench.proxy.calls.failing.clear()
    await taking
    await root.stop()


async def test_proxies_forget_databases_when_one_is_made_or_altered() -> None:
    bench, root = await started()
    await root.create_database("shop", {"database.force.deny.writing": "true"})
    assert len(bench.proxy.calls.of("invalidate_databases")) == 1
    await root.alter_database("shop", {"database.force.deny.writing": "false"}, ())
    assert len(bench.proxy.calls.of("invalidate_databases")) == 2


async def test_a_definition_that_is_too_large_for_a_record_is_refused_and_changes_nothing() -> None:
    _, root = await started("c")
    huge = {"k" * 2_000_000: "v"}
    await refused(
        root.create_collection(replace(new("d"), properties=huge)), RecordTooLarge, "at most 990000"
    )
    await refused(root.create_database("books", huge), RecordTooLarge, "shorten names")
    assert [c.name for c in await root.list_collections("")] == ["c"]
    made = await root.create_collection(new("d"))
    assert made.properties == {}
    await root.stop()
