"""Definitions: the rules of the names, their order in the log, and what is done again after a crash."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from fakes import OTHER, schema, settle
from root_bench import PCHANNELS, Bench, new

from elanus.core.catalog import Collection
from elanus.core.channels import pchannel_of
from elanus.core.errors import (
    AliasAlreadyExists,
    AliasConflict,
    AliasNotFound,
    CollectionAlreadyExists,
    CollectionLimitReached,
    CollectionNotFound,
    DatabaseLimitReached,
    DatabaseNotFound,
    DiskFull,
    ElanusError,
    InvalidParameter,
    PartitionNotFound,
    Unavailable,
)
from elanus.core.ids import PartitionID, SegmentID
from elanus.core.messages import MsgKind
from elanus.core.packs import PackAssembler
from elanus.core.schema import DataType
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import compose
from elanus.log.port import NewEntry, Position
from elanus.rootcoord import lifecycle, names
from elanus.rootcoord.coord import RootCoord


async def started(*collections: str) -> tuple[Bench, RootCoord]:
    bench = Bench()
    root = await bench.start()
    for name in collections:
        await root.create_collection(new(name))
    await settle()
    return bench, root


async def refused(work: Awaitable[object], error: type[ElanusError], match: str | None = None) -> None:
    with pytest.raises(error, match=match):
        await work


# creating


async def test_a_collection_gets_ids_channels_and_a_default_partition() -> None:
    bench, root = await started()
    made = await root.create_collection(new("c", shards=2, properties={"ttl": "5"}))
    assert [f.field_id for f in made.schema.fields] == [100, 101, 102]
    assert [p.name for p in made.partitions] == ["_default"]
    assert made.partitions[0].partition_id not in (0, made.collection_id)
    assert made.vchannels == tuple(f"by-dev-rootcoord-dml_{n}_{made.collection_id}v{n}" for n in (0, 1))
    assert dict(made.properties) == {"ttl": "5"}
    assert (
        await root.describe_collection("default", "c")
        == made
        == await root.collection_by_id(made.collection_id)
    )
    assert bench.data.calls.of("watch_channels") == [made.collection_id]
    await root.stop()


async def test_its_message_stands_in_each_vchannel_where_reading_begins() -> None:
    bench, root = await started()
    made = await root.create_collection(new("c", shards=2))
    for vchannel, start in made.starts.items():
        (entry,) = [
            e
            for e in bench.log.read_range(
                pchannel_of(vchannel), start.position, bench.log.end(pchannel_of(vchannel))
            )
            if e.header.vchannel == vchannel
        ]
        assert (entry.header.kind, entry.header.ts) == (MsgKind.CREATE_COLLECTION, made.created)
        assert entry.position == start.position
        assert start.ts == made.created - 1, "so that its own creation is the first a reader meets"
    await root.stop()


async def test_a_reader_that_begins_at_the_start_gets_the_creation_in_its_first_pack() -> None:
    bench, root = await started("before")
    await bench.tick()
    made = await root.create_collection(new("c", shards=1))
    await bench.tick()
    (vchannel,) = made.vchannels
    reader: PackAssembler[MsgKind] = PackAssembler(made.starts[vchannel], [vchannel])
    pchannel = pchannel_of(vchannel)
    start = Position(made.starts[vchannel].position)
    packs = [
        pack
        for entry in bench.log.read_range(pchannel, start, bench.log.end(pchannel))
        if (pack := reader.feed(entry.header, entry.position, entry.next, entry.header.kind))
    ]
    assert packs[0].entries == (MsgKind.CREATE_COLLECTION,)
    assert reader.late_messages == 0
    await root.stop()


async def test_creating_it_again_is_no_error_when_it_is_the_same() -> None:
    bench, root = await started("c")
    known = await root.describe_collection("default", "c")
    length = len(bench.all_headers())
    assert await root.create_collection(new("c")) == known
    assert len(bench.all_headers()) == length, "no second message"
    other_type = schema("c", DataType.VARCHAR, numbered=False)
    for request in (new("c", shards=1), new("c", of=other_type)):
        await refused(root.create_collection(request), CollectionAlreadyExists, "different parameters")
    await root.stop()


async def test_a_name_that_is_an_alias_is_taken() -> None:
    _, root = await started("c")
    await root.create_alias("default", "c", "a")
    await refused(root.create_collection(new("a")), CollectionAlreadyExists)
    await root.stop()


async def test_shards_go_where_the_fewest_are() -> None:
    _, root = await started()
    for n in range(3 * PCHANNELS):
        await root.create_collection(new(f"c{n}", shards=1))
    used = Counter(pchannel_of(v) for c in await root.list_collections("") for v in c.vchannels)
    assert set(used.values()) == {3}
    many = await root.create_collection(new("many", shards=PCHANNELS + 1))
    assert len(set(many.vchannels)) == PCHANNELS + 1, "a pchannel may carry two of one collection"
    await root.stop()


async def test_there_is_a_limit_of_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "COLLECTIONS_MAX", 2)
    _, root = await started("a", "b")
    await refused(root.create_collection(new("c")), CollectionLimitReached, "limit=2")
    await root.drop_collection("default", "a")
    await root.create_collection(new("c"))
    await root.stop()


# dropping


async def test_a_drop_releases_memory_then_indexes_then_data_and_is_told_to_the_proxies() -> None:
    bench, root = await started("c")
    made = await root.describe_collection("default", "c")
    cid = made.collection_id
    await root.drop_collection("default", "c")
    assert bench.query.calls.of("release") == [(cid, ())]
    assert bench.index.calls.of("drop_collection") == [cid]
    assert bench.data.calls.of("drop_collection") == [cid]
    assert bench.proxy.calls.of("invalidate_collection") == [cid]
    assert sorted(h.vchannel for h in bench.ddl(MsgKind.DROP_COLLECTION)) == sorted(made.vchannels)
    for work in (
        root.describe_collection("default", "c"),
        root.collection_by_id(cid),
        root.drop_collection("default", "c"),
    ):
        await refused(work, CollectionNotFound)
    await root.stop()


async def test_a_collection_with_aliases_is_not_dropped_and_an_alias_drops_nothing() -> None:
    bench, root = await started("c")
    await root.create_alias("default", "c", "a")
    await refused(root.drop_collection("default", "c"), InvalidParameter, r"aliases \['a'\]")
    await refused(root.drop_collection("default", "a"), InvalidParameter, "via alias")
    assert bench.ddl(MsgKind.DROP_COLLECTION) == []
    assert bench.query.calls.of("release") == []
    await root.drop_alias("default", "a")
    await root.drop_collection("default", "c")
    await root.stop()


async def test_a_name_is_free_again_at_once_and_names_another_collection() -> None:
    _, root = await started("c")
    old = await root.describe_collection("default", "c")
    await root.drop_collection("default", "c")
    made = await root.create_collection(new("c", shards=1))
    assert made.collection_id != old.collection_id
    await root.stop()


async def test_a_dropped_collection_is_forgotten_when_its_channels_are_gone() -> None:
    bench, root = await started("c", "other")
    made = await root.describe_collection("default", "c")
    bench.data.recoveries[made.collection_id] = None  # type: ignore[assignment]  # its channels are held
    await root.drop_collection("default", "c")
    await asyncio.sleep(5)
    assert len(await bench.meta.list("rootcoord/collection/")) == 2
    del bench.data.recoveries[made.collection_id]
    await asyncio.sleep(2)
    assert len(await bench.meta.list("rootcoord/collection/")) == 1
    assert set(await root.ticks()) == {"by-dev-rootcoord-dml_0", "by-dev-rootcoord-dml_1"}, "other uses them"
    await root.drop_collection("default", "other")
    await asyncio.sleep(2)
    assert await root.ticks() == {}, "nobody uses them any more"
    await root.stop()


async def test_forgetting_a_collection_leaves_its_pchannel_to_one_that_is_being_created() -> None:
    bench, root = await started("c")
    await root.drop_collection("default", "c")
    append, go_on = bench.log.append, asyncio.Event()

    async def slow_append(pchannel: str, entries: list[NewEntry], *, durable: bool = True) -> object:
        if entries[0].header.kind is MsgKind.CREATE_COLLECTION:
            await go_on.wait()
        return await append(pchannel, entries, durable=durable)

    bench.log.append = slow_append  # type: ignore[method-assign,assignment]
    creating = asyncio.ensure_future(root.create_collection(new("d")))
    await asyncio.sleep(3)  # the dropped one is forgotten now, or as soon as it can be
    go_on.set()
    await creating
    await asyncio.sleep(3)
    await bench.tick()
    assert len(await root.ticks()) == 2
    await root.stop()


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


async def test_an_alias_is_a_second_name() -> None:
    bench, root = await started("c", "d")
    await root.create_alias("default", "c", "a")
    await root.create_alias("default", "c", "a")  # the same again
    assert (await root.describe_collection("default", "a")).name == "c"
    await root.alter_alias("default", "d", "a")
    assert (await root.describe_collection("default", "a")).name == "d"
    assert (await root.describe_collection("default", "c")).aliases == ()
    ids = [(await root.describe_collection("default", n)).collection_id for n in ("c", "d")]
    assert bench.proxy.calls.of("invalidate_collection")[-2:] == ids, "both caches are emptied"
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


# partitions


async def test_partitions_come_and_go_in_order_with_the_writes() -> None:
    bench, root = await started("c")
    await root.create_partition("default", "c", "p")
    made = await root.describe_collection("default", "c")
    partition = made.partitions[1]
    created = bench.ddl(MsgKind.CREATE_PARTITION)
    assert {(h.vchannel, h.partition_id, h.ts) for h in created} == {
        (v, partition.partition_id, partition.created) for v in made.vchannels
    }
    await root.create_partition("default", "c", "p")
    assert bench.ddl(MsgKind.CREATE_PARTITION) == created, "creating it again is no error and no message"
    await root.drop_partition("default", "c", "p")
    assert {h.vchannel for h in bench.ddl(MsgKind.DROP_PARTITION)} == set(made.vchannels)
    assert bench.query.calls.of("release") == [(made.collection_id, (partition.partition_id,))]
    assert bench.data.calls.of("drop_partition") == [(made.collection_id, partition.partition_id)]
    assert bench.proxy.calls.of("invalidate_collection") == [made.collection_id] * 2
    await root.create_partition("default", "c", "p")
    again = (await root.describe_collection("default", "c")).partitions[1]
    assert again.partition_id != partition.partition_id
    await root.stop()


async def test_rules_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "PARTITIONS_MAX", 2)
    _, root = await started("c")
    await refused(root.drop_partition("default", "c", "_default"), InvalidParameter, "default partition")
    await refused(root.drop_partition("default", "c", "nope"), PartitionNotFound)
    await refused(root.create_partition("default", "nope", "p"), CollectionNotFound)
    await root.create_partition("default", "c", "p")
    await refused(root.create_partition("default", "c", "q"), InvalidParameter, "exceeds max")
    await root.stop()


# one at a time, and over restarts


async def test_definitions_that_come_together_are_made_one_after_the_other() -> None:
    bench, root = await started()
    made = await asyncio.gather(*(root.create_collection(new("c")) for _ in range(10)))
    assert len({c.collection_id for c in made}) == 1
    assert len(bench.ddl(MsgKind.CREATE_COLLECTION)) == 2
    await root.stop()


async def test_everything_defined_is_there_after_a_restart() -> None:
    bench, root = await started("c", "d")
    await root.create_database("books", {"a": "1"})
    await root.create_alias("default", "c", "a")
    await root.create_partition("default", "c", "p")
    await root.drop_collection("default", "d")
    before = (await root.list_databases(), await root.list_collections(""))
    root = await bench.restart()
    assert (await root.list_databases(), await root.list_collections("")) == before
    await root.stop()


async def crashed(bench: Bench, dying: Awaitable[object]) -> RootCoord:
    """The process dies while ``dying`` waits for what will not come; another one starts."""
    task = asyncio.ensure_future(dying)
    await settle()
    assert not task.done()
    task.cancel()
    await settle()
    return await bench.restart()


def never(method: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
    async def wait(*_args: object, **_kwargs: object) -> object:
        return await asyncio.Event().wait()

    return wait


async def test_a_crash_before_the_catalogs_write_leaves_no_collection() -> None:
    bench, root = await started()
    root._catalog.put = never(root._catalog.put)  # type: ignore[method-assign,assignment]
    root = await crashed(bench, root.create_collection(new("c")))
    assert len(bench.ddl(MsgKind.CREATE_COLLECTION)) == 2, "its message stands there, and means nothing"
    await refused(root.describe_collection("default", "c"), CollectionNotFound)
    await root.create_collection(new("c"))
    await root.stop()


async def test_a_collection_whose_creation_was_cut_off_is_watched_after_all() -> None:
    bench, root = await started()
    watch = bench.data.watch_channels
    bench.data.watch_channels = never(watch)  # type: ignore[method-assign,assignment]
    task = asyncio.ensure_future(root.create_collection(new("c")))
    await settle()
    bench.data.watch_channels = watch  # type: ignore[method-assign]
    task.cancel()
    root = await bench.restart()
    await settle()
    made = await root.describe_collection("default", "c")
    assert bench.data.calls.of("watch_channels") == [made.collection_id]
    await root.stop()


async def test_a_collection_that_could_not_be_watched_is_watched_as_soon_as_it_can_be() -> None:
    bench, root = await started()
    bench.data.calls.failing["watch_channels"] = Unavailable("restarting")
    await refused(root.create_collection(new("c")), Unavailable)
    bench.data.calls.failing.clear()
    made = await root.describe_collection("default", "c")
    await asyncio.sleep(2)
    assert bench.data.calls.of("watch_channels")[-1:] == [made.collection_id]
    before = len(bench.data.calls.asked)
    await asyncio.sleep(10)
    assert len(bench.data.calls.asked) == before, "and then it is done"
    await root.stop()


@pytest.mark.parametrize("where", ["query.release", "index.drop_collection", "data.drop_collection"])
@pytest.mark.parametrize("how", ["error", "crash"])
async def test_a_drop_that_was_cut_off_goes_to_its_end(where: str, how: str) -> None:
    bench, root = await started("c")
    cid = (await root.describe_collection("default", "c")).collection_id
    bench.data.recoveries[cid] = None  # type: ignore[assignment]  # its channels are held
    role, method = where.split(".")
    peer = getattr(bench, role)
    if how == "error":
        peer.calls.failing[method] = Unavailable("restarting")
        await refused(root.drop_collection("default", "c"), Unavailable)
        peer.calls.failing.clear()
    else:
        real = getattr(peer, method)
        setattr(peer, method, never(real))
        task = asyncio.ensure_future(root.drop_collection("default", "c"))
        await settle()
        setattr(peer, method, real)
        task.cancel()
        root = await bench.restart()
    await refused(root.describe_collection("default", "c"), CollectionNotFound)
    await asyncio.sleep(2)
    assert bench.query.calls.of("release")[-1] == (cid, ())
    assert bench.index.calls.of("drop_collection")[-1] == cid
    assert bench.data.calls.of("drop_collection")[-1] == cid
    messages = Counter(h.vchannel for h in bench.ddl(MsgKind.DROP_COLLECTION))
    assert set(messages.values()) == {2}, "told again: the first time may have been lost"
    await root.stop()


async def test_a_drop_whose_message_found_no_room_is_told_when_there_is() -> None:
    bench, root = await started("c")
    append = bench.log.append

    async def full(*_args: object, **_kwargs: object) -> object:
        raise DiskFull("no room")

    bench.log.append = full  # type: ignore[method-assign,assignment]
    await refused(root.drop_collection("default", "c"), DiskFull)
    await asyncio.sleep(3)
    bench.log.append = append  # type: ignore[method-assign]
    await asyncio.sleep(3)
    assert len(bench.ddl(MsgKind.DROP_COLLECTION)) == 2
    await root.stop()


def segment_in(collection: Collection, partition_id: PartitionID, state: SegmentState) -> SegmentInfo:
    at = compose(1)
    return SegmentInfo(
        SegmentID(partition_id + state),
        collection.collection_id,
        partition_id,
        collection.vchannels[0],
        state,
        9,
        at,
        at,
    )


async def test_a_partition_whose_drop_was_cut_off_is_dropped_to_the_end() -> None:
    bench, root = await started("c")
    await root.create_partition("default", "c", "p")
    made = await root.describe_collection("default", "c")
    kept, gone, finished = (
        p.partition_id for p in (*made.partitions, replace(made.partitions[0], partition_id=OTHER))
    )
    for info in (
        segment_in(made, kept, SegmentState.FLUSHED),
        segment_in(made, gone, SegmentState.FLUSHED),
        segment_in(made, finished, SegmentState.DROPPED),
    ):
        bench.data.infos[info.segment_id] = info
    append = bench.log.append
    bench.log.append = never(append)  # type: ignore[method-assign,assignment]
    task = asyncio.ensure_future(root.drop_partition("default", "c", "p"))
    await settle()
    bench.log.append = append  # type: ignore[method-assign]
    task.cancel()
    root = await bench.restart()
    await settle()
    assert [p.name for p in (await root.describe_collection("default", "c")).partitions] == ["_default"]
    assert {h.partition_id for h in bench.ddl(MsgKind.DROP_PARTITION)} == {gone}
    assert bench.data.calls.of("drop_partition") == [(made.collection_id, gone)]
    assert bench.query.calls.of("release") == [(made.collection_id, (gone,))]
    await root.stop()


async def test_a_crash_while_a_partition_is_created_leaves_none() -> None:
    bench, root = await started("c")
    root._catalog.put = never(root._catalog.put)  # type: ignore[method-assign,assignment]
    root = await crashed(bench, root.create_partition("default", "c", "p"))
    assert len((await root.describe_collection("default", "c")).partitions) == 1
    await root.stop()
