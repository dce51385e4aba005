"""Collections and partitions: how they come and go, in order with the writes."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from fakes import schema
from root_bench import PCHANNELS, new, refused, started

from elanus.core.channels import pchannel_of
from elanus.core.consistency import ConsistencyLevel
from elanus.core.errors import (
    CollectionAlreadyExists,
    CollectionLimitReached,
    CollectionNotFound,
    InvalidParameter,
    PartitionNotFound,
)
from elanus.core.messages import MsgKind
from elanus.core.packs import PackAssembler
from elanus.core.schema import DataType
from elanus.log.port import NewEntry, Position
from elanus.rootcoord import catalog, lifecycle

# creating


async def test_a_partition_key_gets_numbered_partitions_at_once() -> None:
    _, root = await started()
    made = await root.create_collection(new("tenants", key_partitions=3))
    assert [p.name for p in made.partitions] == ["_default_0", "_default_1", "_default_2"]
    ids = [p.partition_id for p in made.partitions]
    later = await root.create_collection(new("others"))
    assert len({*ids, made.collection_id, later.collection_id, later.partitions[0].partition_id}) == 6
    assert await root.create_collection(new("tenants", key_partitions=3)) == made
    await refused(
        root.create_collection(new("tenants", key_partitions=4)),
        CollectionAlreadyExists,
        "different parameters",
    )


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


async def test_creating_it_again_with_another_property_or_consistency_level_is_refused() -> None:
    _, root = await started()
    asked = new("c", properties={"collection.ttl.seconds": "60"})
    known = await root.create_collection(asked)
    strong = replace(asked, consistency_level=ConsistencyLevel.STRONG)
    for request, differs in (
        (strong, "it has the consistency level Bounded, not Strong: alter it, or drop it first"),
        (new("c", properties={"collection.ttl.seconds": "5"}), "collection.ttl.seconds 60, not 5"),
        (new("c", properties={"mmap.enabled": "true"}), "mmap.enabled unset, not true"),
    ):
        await refused(root.create_collection(request), CollectionAlreadyExists, differs)
    assert await root.create_collection(asked) == known
    assert await root.create_collection(new("c")) == known, "further properties are no conflict"
    await root.alter_collection("default", "c", {"consistency_level": "Strong"}, ())
    assert (await root.create_collection(strong)).collection_id == known.collection_id
    await root.stop()


async def test_a_name_that_is_an_alias_is_taken() -> None:
    _, root = await started("c")
    await root.create_alias("default", "c", "a")
    taken = r"collection name \[a\] conflicts with an existing alias, .*: it is an alias of c$"
    await refused(root.create_collection(new("a")), CollectionAlreadyExists, taken)
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
    monkeypatch.setattr(catalog, "COLLECTIONS_MAX", 2)
    _, root = await started("a", "b")
    await refused(root.create_collection(new("c")), CollectionLimitReached, "limit=2")
    await root.drop_collection("default", "a")
    await root.create_collection(new("c"))
    await root.stop()


async def test_a_database_may_have_a_limit_of_its_own() -> None:
    _, root = await started("a", "b")
    await root.create_database("books", {"database.max.collections": "1"})
    first = new("c", database="books")
    await root.create_collection(first)
    await root.create_collection(first)  # repeated
    text = r"exceeded the limit number of collections\[dbName=books\]\[limit=1\]"
    await refused(root.create_collection(new("d", database="books")), CollectionLimitReached, text)
    await root.create_collection(new("d"))
    await root.alter_database("books", {}, ("database.max.collections",))
    await root.create_collection(new("d", database="books"))
    await root.stop()


# dropping


async def test_a_drop_releases_memory_then_indexes_then_data_and_notifies_the_proxies() -> None:
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
    await refused(root.drop_collection("default", "c"), InvalidParameter, r"aliases \[a\]")
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
    await refused(root.drop_collection("default", "c", old.collection_id), CollectionNotFound, "already")
    assert (await root.describe_collection("default", "c")).collection_id == made.collection_id
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
    await refused(
        root.create_partition("default", "c", "q"), InvalidParameter, r"\(2\) exceeds .* \(2\), collection: c"
    )
    await root.stop()
