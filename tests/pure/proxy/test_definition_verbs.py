"""Collections, indexes and loads as a client's thread asks for them; and what is said when there are none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fakes import CID, DEFAULT, OTHER, collection, index, schema
from proxy_bench import NODE, Bench, asked, refused

from elanus.api.querycoord import LoadStall, LoadStatus, ResourceGroupStatus, UnreadableSegment
from elanus.api.querynode import SegmentServing
from elanus.core.consistency import ConsistencyLevel
from elanus.core.errors import (
    CollectionNotFound,
    CollectionNotLoaded,
    DatabaseNotFound,
    IndexNotFound,
    InvalidParameter,
    PartitionNotFound,
    PartitionNotLoaded,
    Unavailable,
)
from elanus.core.group_config import GroupConfig
from elanus.core.ids import CollectionID, FieldID, IndexID, NodeID, SegmentID
from elanus.core.limits import PROPERTIES_MAX
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import compose
from elanus.proxy.api.collections import CreateCollection
from elanus.proxy.api.introspection import SegmentView
from elanus.proxy.api.loading import LoadedView, LoadRequest
from elanus.proxy.api.resource_groups import ResourceGroupView


def loaded(*percentages: int, whole: bool = True) -> LoadStatus:
    return LoadStatus(CID, whole, dict(zip((DEFAULT, OTHER), percentages, strict=False)))


# collections


@pytest.mark.parametrize(("name", "there"), [("c", True), ("a", True), ("nope", False)])
def test_has_collection_knows_names_and_aliases(name: str, there: bool) -> None:
    asked(lambda b: check(b.verbs.has_collection("default", name) is there))


def test_a_missing_database_has_no_collection() -> None:
    async def missing(*_: object) -> None:
        raise DatabaseNotFound("database not found[database=nope]")

    def ask(bench: Bench) -> None:
        bench.root.describe_collection = missing  # type: ignore[attr-defined]
        assert not bench.verbs.has_collection("nope", "c")

    asked(ask)


def check(true: object) -> None:
    assert true


def test_dropping_what_is_not_there_succeeds_and_other_errors_do_not() -> None:
    async def missing(*_: object) -> None:
        raise CollectionNotFound("gone already")

    async def aliased(*_: object) -> None:
        raise InvalidParameter("remove its aliases first")

    def drop(bench: Bench, how: Any) -> None:
        bench.root.drop_collection = how  # type: ignore[attr-defined]
        bench.verbs.drop_collection("default", "c")

    async def nowhere(*_: object) -> None:
        raise DatabaseNotFound("no such database")

    asked(lambda b: drop(b, missing))

    def drop_nowhere(bench: Bench) -> None:
        bench.root.describe_collection = nowhere  # type: ignore[attr-defined]
        bench.verbs.drop_collection("nope", "c")

    asked(drop_nowhere)
    refused(lambda b: drop(b, aliased), InvalidParameter, "aliases")


def test_dropping_a_partition_or_database_that_is_not_there_succeeds() -> None:
    async def no_partition(*_: str) -> None:
        raise PartitionNotFound("gone already")

    async def no_database(_name: str) -> None:
        raise DatabaseNotFound("gone already")

    def drop(bench: Bench) -> None:
        bench.root.drop_partition = no_partition  # type: ignore[attr-defined]
        bench.root.drop_database = no_database  # type: ignore[attr-defined]
        bench.verbs.drop_partition("default", "c", "nope")
        bench.verbs.drop_database("nope")

    asked(drop)


def test_a_loaded_partition_is_not_dropped_nor_the_default_one() -> None:
    def drop(bench: Bench, partition: str) -> None:
        bench.query.statuses = [loaded(50, 50)]
        bench.verbs.drop_partition("default", "c", partition)

    message = "partition cannot be dropped, partition is loaded, please release it first"
    refused(lambda bench: drop(bench, "p1"), InvalidParameter, message)
    refused(lambda bench: drop(bench, "_default"), InvalidParameter, "default partition cannot be deleted")


def test_altering_a_database_names_what_to_alter() -> None:
    refused(lambda b: b.verbs.alter_database("default", {}, ()), InvalidParameter, "empty properties")
    for name in ("database.replica.number", "database.max.collections"):
        for value in ("x", "-1", "1.5", ""):
            given = {name: value}
            message = f"{name} is '{value}': give a whole number"
            refused(lambda b, g=given: b.verbs.alter_database("default", g, ()), InvalidParameter, message)
            refused(lambda b, g=given: b.verbs.create_database("shop", g), InvalidParameter, message)


def test_a_load_that_names_no_replicas_follows_its_database() -> None:
    def work(bench: Bench) -> None:
        bench.index.defined = [index()]
        bench.root.database_properties = {
            "database.replica.number": "2",
            "database.resource_groups": "rg1, rg2",
        }
        bench.verbs.load(LoadRequest("default", "c"))
        bench.verbs.load(LoadRequest("default", "c", replicas=1, resource_groups=("rg",)))
        bench.verbs.load(LoadRequest("default", "c", replicas=1))
        bench.root.database_properties = {}
        bench.verbs.load(LoadRequest("default", "c"))
        bench.query.statuses = [loaded(100, 100)]
        bench.root.database_properties = {"database.replica.number": "3"}
        bench.verbs.load(LoadRequest("default", "c"))

    given = [call[2:4] for call in asked(work).query.calls.of("load")]
    assert given == [(2, ("rg1", "rg2")), (1, ("rg",)), (1, ("rg1", "rg2")), (1, ()), (0, ())]


def test_a_load_names_all_vector_fields_without_an_index() -> None:
    plain = schema()
    vector = plain.vector_fields[0]
    others = [replace(vector, field_id=FieldID(110 + n), name=name) for n, name in enumerate("ab")]
    of = collection(replace(plain, fields=(*plain.fields, *others)))

    def load(bench: Bench, defined: list[Any]) -> None:
        bench.index.defined = defined
        bench.verbs.load(LoadRequest("default", "c", replicas=1))

    names = f"there is no vector index on field: \\[{vector.name} a b\\]"
    refused(lambda b: load(b, []), IndexNotFound, names, of)
    refused(lambda b: load(b, [index()]), InvalidParameter, r"on field: \[a b\], please create index", of)


def test_a_load_is_refused_if_the_index_was_dropped_while_it_waited() -> None:
    def load(bench: Bench) -> None:
        bench.index.defined = [index()]
        bench.verbs.collection("default", "c")  # as the proxy knows it
        bench.index.defined = []
        bench.verbs.load(LoadRequest("default", "c", replicas=1))

    done = refused(load, IndexNotFound, "please create index firstly")
    assert done.query.calls.of("load") == []


def test_a_partition_count_needs_a_partition_key() -> None:
    request = CreateCollection("default", schema(), 1, ConsistencyLevel.BOUNDED, {}, num_partitions=16)
    refused(lambda b: b.verbs.create_collection(request), InvalidParameter, "partition key")


def test_a_long_description_is_refused() -> None:
    described = replace(schema(), description="é" * 513)
    request = CreateCollection("default", described, 1, ConsistencyLevel.BOUNDED, {})
    refused(lambda b: b.verbs.create_collection(request), InvalidParameter, "must not exceed 1024 bytes")


def test_what_is_new_has_a_thousand_properties_at_most() -> None:
    many = {f"p{n}": "1" for n in range(PROPERTIES_MAX + 1)}
    vector = next(field.name for field in schema().fields if field.is_searched)
    new = CreateCollection("default", replace(schema(), name="new"), 1, ConsistencyLevel.STRONG, many)
    for work, said in (
        (lambda b: b.verbs.create_collection(new), "collection new has 1025 properties"),
        (lambda b: b.verbs.create_database("shop", many), "database shop has 1025 properties"),
        (lambda b: b.verbs.create_index("default", "c", vector, "", many), "the index on field .* has 1025"),
    ):
        refused(work, InvalidParameter, said)


def test_rows_of_a_collection_are_those_of_its_live_segments() -> None:
    def segment(number: int, partition: Any, state: SegmentState, rows: int) -> SegmentInfo:
        zero = compose(1)
        return SegmentInfo(SegmentID(number), CID, partition, "v", state, 1000, zero, zero, rows=rows)

    def work(bench: Bench) -> None:
        states = SegmentState.GROWING, SegmentState.FLUSHED, SegmentState.DROPPED
        infos = [segment(n, (DEFAULT, OTHER)[n % 2], s, 10**n) for n, s in enumerate(states)]
        bench.data.infos = {i.segment_id: i for i in infos}
        assert bench.verbs.collection_rows("default", "c") == 11
        assert bench.verbs.partition_rows("default", "c", "_default") == 1
        assert bench.verbs.partition_rows("default", "c", "p1") == 10
        assert [s.rows for s in bench.verbs.persistent_segments("default", "c")] == [1, 10]

    asked(work)


def test_an_alias_leads_to_its_collection() -> None:
    def work(bench: Bench) -> None:
        assert list(bench.verbs.describe_collection("default", "c").aliases) == ["a"]
        assert bench.verbs.describe_alias("default", "a") == "c"

    asked(work)


# loading


def test_a_load_needs_an_index_on_every_vector() -> None:
    bench = refused(lambda b: b.verbs.load(LoadRequest("default", "c")), IndexNotFound, r"\[v0\]")
    assert bench.query.calls.of("load") == []


def test_a_load_of_some_fields_needs_no_index_on_the_others() -> None:
    def load(bench: Bench) -> None:
        bench.index.defined.append(index())
        bench.verbs.load(LoadRequest("default", "c", load_fields=("pk", "v0")))
        fields = ("pk", "v0", "price")
        bench.verbs.load(LoadRequest("default", "c", load_fields=fields, skip_dynamic=True))

    bench = asked(load, collection(schema(vectors=2, dynamic=True)))
    chosen, all_but_one = (FieldID(100), FieldID(102), FieldID(104)), tuple(map(FieldID, (100, 101, 102)))
    assert [call[-1] for call in bench.query.calls.of("load")] == [chosen, all_but_one]
    without_vector = LoadRequest("default", "c", load_fields=("pk",))
    refused(lambda b: b.verbs.load(without_vector), InvalidParameter, "vector")


@pytest.mark.parametrize("partitions", [(), ("p1",)])
def test_a_refresh_loads_nothing(partitions: tuple[str, ...]) -> None:
    def refresh(bench: Bench) -> None:
        bench.verbs.load(LoadRequest("default", "c", partitions, replicas=3, refresh=True))

    bench = refused(refresh, CollectionNotLoaded, f"collection not loaded.collection={CID}.")
    assert bench.query.calls.of("load") == []

    def refresh_loaded(bench: Bench) -> None:
        bench.query.statuses = [loaded(100, 100)]
        refresh(bench)

    assert asked(refresh_loaded).query.calls.of("load") == []


def test_a_load_names_partitions_by_id() -> None:
    def load(bench: Bench) -> None:
        bench.index.defined.append(index())
        bench.verbs.load(LoadRequest("default", "c", ("p1",), 1))
        bench.verbs.load(LoadRequest("default", "c", replicas=1, resource_groups=("rg",)))
        bench.verbs.release("default", "c", ["p1"])

    bench = asked(load)
    assert [call for call in bench.query.calls.asked if call[0] in ("load", "release")] == [
        ("load", (CID, (OTHER,), 1, ())),
        ("load", (CID, (), 1, ("rg",))),
        ("release", (CID, (OTHER,))),
    ]
    refused(lambda b: b.verbs.load(LoadRequest("default", "c", ("nope",))), PartitionNotFound)


def test_resource_groups_are_described_with_collections_by_name() -> None:
    def describe(bench: Bench) -> None:
        counts = {CID: 2, CollectionID(999): 1}
        bench.query.resource_group = ResourceGroupStatus("rg", 3, (NodeID(7),), counts, {CID: 1}, {})
        view = bench.verbs.describe_resource_group("rg")
        assert view == ResourceGroupView("rg", 3, (NodeID(7),), {"c": 2}, {"c": 1}, {})
        assert list(bench.verbs.list_resource_groups()) == ["rg"]

    asked(describe)


def test_replicas_are_transferred_by_their_collections_id() -> None:
    def change(bench: Bench) -> None:
        bench.verbs.create_resource_group("a")
        bench.verbs.transfer_node("a", "b", 2)
        bench.verbs.transfer_replica("default", "c", "a", "b", 1)
        bench.verbs.drop_resource_group("a")
        bench.verbs.create_resource_group("b", config)
        bench.verbs.update_resource_groups({"b": config})

    config = GroupConfig(1, 2)
    assert asked(change).query.calls.asked == [
        ("create_resource_group", "a"),
        ("transfer_node", ("a", "b", 2)),
        ("transfer_replica", (CID, "a", "b", 1)),
        ("drop_resource_group", "a"),
        ("create_resource_group", ("b", config)),
        ("update_resource_groups", {"b": config}),
    ]


@pytest.mark.parametrize(
    ("status", "partitions", "state"),
    [
        (None, [], "NotLoad"),
        (loaded(100, 100), [], "Loaded"),
        (loaded(100, 99), [], "Loading"),
        (loaded(100, 99), ["_default"], "Loaded"),
        (loaded(100, whole=False), ["p1"], "NotLoad"),
    ],
)
def test_load_states(status: LoadStatus | None, partitions: list[str], state: str) -> None:
    def work(bench: Bench) -> None:
        bench.query.statuses = [status] if status else []
        assert bench.verbs.load_state("default", "c", partitions).state == state

    asked(work)
    asked(lambda b: check(b.verbs.load_state("default", "nope", []).state == "NotExist"))


@pytest.mark.parametrize("status", [None, loaded(100, 100)])
def test_the_load_state_of_a_missing_partition_is_an_error(status: LoadStatus | None) -> None:
    def work(bench: Bench) -> None:
        bench.query.statuses = [status] if status else []
        with pytest.raises(PartitionNotFound, match=r"partition not found\[partition=nope\]"):
            bench.verbs.load_state("default", "c", ["_default", "nope"])

    asked(work)


def test_the_load_state_names_segments_that_cannot_be_read() -> None:
    def work(bench: Bench) -> None:
        whole = loaded(100, 66)
        _, other = whole.percentages
        gaps = [UnreadableSegment(SegmentID(n), other, f"segment {n}: damaged", True) for n in range(7)]
        bench.query.statuses = [replace(whole, unreadable=tuple(gaps))]
        found = bench.verbs.load_state("default", "c", [])
        assert found.state == "Loading"
        assert found.obstacle.startswith("segment 0: damaged; segment 1: damaged")
        assert found.obstacle.endswith("(and 2 more segments)")
        assert bench.verbs.load_state("default", "c", ["_default"]).obstacle == ""

    asked(work)


def test_progress_is_that_of_the_slowest_partition_asked_for() -> None:
    def work(bench: Bench) -> None:
        bench.query.statuses = [loaded(100, 40)]
        assert bench.verbs.loading_progress("default", "c", []) == LoadedView("c", 40, False)
        bench.query.statuses = [replace(loaded(100, 40), stall=LoadStall("no answer", 42.3))]
        with pytest.raises(Unavailable, match=r"c is not loaded yet: for 42 s .*no answer"):
            bench.verbs.loading_progress("default", "c", [])
        assert bench.verbs.loading_progress("default", "c", ["_default"]) == LoadedView("c", 100, True)
        assert bench.verbs.loaded_partitions("default", "c")["p1"].percentage == 40
        assert set(bench.verbs.loaded_collections("default")) == {"c"}

    asked(work)


def test_progress_of_what_was_never_asked_to_load_is_an_error() -> None:
    refused(lambda b: b.verbs.loading_progress("default", "c", []), CollectionNotLoaded)

    def partly(bench: Bench) -> None:
        bench.query.statuses = [loaded(100, whole=False)]
        bench.verbs.loading_progress("default", "c", ["p1"])

    refused(partly, PartitionNotLoaded)


# insight


def test_query_segments_show_state_node_and_index() -> None:
    def work(bench: Bench) -> None:
        bench.index.defined.append(index(90))
        bench.query.held = (
            (
                NODE,
                SegmentServing(SegmentID(1), CID, DEFAULT, "v", 10, True, 4096, IndexID(90), (IndexID(90),)),
            ),
            (NODE, SegmentServing(SegmentID(2), CID, OTHER, "v", 5, False, 512, IndexID(0))),
        )
        zero = compose(1)
        known = SegmentInfo(SegmentID(1), CID, DEFAULT, "v", SegmentState.FLUSHED, 1000, zero, zero)
        bench.data.infos = {SegmentID(1): replace(known, is_sorted=True)}
        assert list(bench.verbs.query_segments("default", "c")) == [
            SegmentView(
                SegmentID(1),
                CID,
                DEFAULT,
                10,
                SegmentState.SEALED,
                4096,
                IndexID(90),
                "v0",
                (NODE,),
                "",
                True,
            ),
            SegmentView(SegmentID(2), CID, OTHER, 5, SegmentState.GROWING, 512, IndexID(0), "", (NODE,)),
        ]

    asked(work)
