"""The proxy refuses what switches deny and what exceeds a rate, before anything is done for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fakes import collection, schema
from proxy_bench import Bench, resolved
from read_bench import Bench as ReadBench
from read_bench import cached as searchable
from read_bench import search

from elanus.api.connector import SnapshotLease
from elanus.core.catalog import Database
from elanus.core.consistency import ConsistencyLevel, ReadConsistency
from elanus.core.errors import ForceDenied, RateLimited
from elanus.core.ids import CollectionID, DatabaseID
from elanus.core.rankers import Rrf
from elanus.core.rate_limits import EVERYTHING, Allowed, Rate
from elanus.core.timestamps import NO_TIMESTAMP
from elanus.proxy.api.collections import CreateCollection
from elanus.proxy.api.loading import LoadRequest
from elanus.proxy.api.query import Query
from elanus.proxy.api.search import HybridSearch
from elanus.proxy.api.writes import Delete, Insert
from elanus.proxy.role.admission import Admission
from elanus.proxy.role.cache import CachedCollection
from elanus.proxy.verbs.hybrid import HybridSearching
from elanus.proxy.verbs.search import Searching
from elanus.proxy.verbs.snapshots import Snapshots

PLAIN = collection()
NAME = PLAIN.name


def with_properties(**properties: str) -> CachedCollection:
    named = {name.replace("__", "."): value for name, value in properties.items()}
    return resolved(replace(PLAIN, properties=named))


class World:
    """An admission on a clock that the test moves, among as many proxies as it says."""

    def __init__(self, server: dict[Rate, float] | None = None, database: Allowed = EVERYTHING) -> None:
        self.now_s, self.proxies = 0.0, 1
        self.admission = Admission(lambda _: database, server or {}, lambda: self.proxies, lambda: self.now_s)

    def admitted(self, cached: CachedCollection, amount: int, times: int) -> int:
        """How many searches of that many vectors are admitted at this moment."""
        return sum(self.is_admitted(cached, amount) for _ in range(times))

    def is_admitted(self, cached: CachedCollection, amount: int) -> bool:
        try:
            self.admission.read(cached, Rate.SEARCH, amount)
        except RateLimited:
            return False
        return True


LIMITED = with_properties(collection__searchRate__max__vps="30")


def test_a_collection_has_its_rate_and_others_have_theirs() -> None:
    world = World()
    other = resolved(replace(PLAIN, collection_id=CollectionID(777)))
    assert world.admitted(LIMITED, 10, 5) == 3
    assert world.admitted(other, 10, 5) == 5
    world.now_s = 1.0
    assert world.admitted(LIMITED, 10, 5) == 3


def test_the_rate_is_divided_among_the_live_proxies() -> None:
    world = World()
    world.proxies = 3
    assert world.admitted(LIMITED, 10, 5) == 1
    world.proxies, world.now_s = 1, 10.0
    assert world.admitted(LIMITED, 10, 5) == 3


def test_the_server_limits_all_collections_together() -> None:
    world = World({Rate.SEARCH: 20})
    other = resolved(replace(PLAIN, collection_id=CollectionID(777)))
    assert (world.admitted(LIMITED, 10, 1), world.admitted(other, 10, 5)) == (1, 1)


def test_a_refused_request_takes_nothing() -> None:
    world = World({Rate.SEARCH: 20})
    other = resolved(replace(PLAIN, collection_id=CollectionID(777)))
    assert world.admitted(other, 200, 1) == 1
    assert world.admitted(LIMITED, 10, 5) == 0
    world.now_s = 9.5  # the server's debt is paid
    assert world.admitted(LIMITED, 10, 1) == 1


def test_the_error_has_the_text_that_clients_know_and_names_the_limit() -> None:
    world = World()
    world.admission.read(LIMITED, Rate.SEARCH, 30)
    with pytest.raises(RateLimited, match=r"retry later: rate limit exceeded\[rate=30\]: search rate") as e:
        world.admission.read(LIMITED, Rate.SEARCH, 1)
    assert (e.value.code, e.value.retriable) == (8, True)


def test_what_is_spent_is_paid_for_by_later_requests() -> None:
    world = World()
    limited = with_properties(collection__deleteRate__max__mb="1")
    world.admission.write(limited, Rate.DELETE, 0)
    world.admission.spend(limited, Rate.DELETE, 3 * 1024 * 1024)
    with pytest.raises(RateLimited):
        world.admission.write(limited, Rate.DELETE, 0)
    world.now_s = 2.1
    world.admission.write(limited, Rate.DELETE, 0)


# verbs


def in_a_thread(work: Callable[[Bench], object], database: dict[str, str] | None = None, **own: str) -> Bench:
    """Run ``work`` in a thread next to a proxy's event loop, as gRPC would."""
    properties = {name.replace("__", "."): value for name, value in own.items()}

    async def run() -> Bench:
        bench = Bench(replace(PLAIN, properties=properties))
        bench.root.database_properties = database or {}
        await asyncio.to_thread(work, bench)
        return bench

    return asyncio.run(run())


def rows() -> pa.RecordBatch:
    columns = {"pk": [1], "price": [1.0], "v0": pa.array([[1.0, 2.0]], schema().field("v0").arrow_type)}
    return pa.RecordBatch.from_pydict({name: pa.array(c) for name, c in columns.items()})


class NoSnapshots:
    async def take_snapshot(self, *_: object) -> SnapshotLease:
        raise AssertionError("the snapshot was taken")


def of(bench: Bench) -> CachedCollection:
    return bench.proxy.collection("default", NAME)


STRONG = ReadConsistency(ConsistencyLevel.STRONG)
CREATE = CreateCollection("default", replace(schema(), name="new"), 1, ConsistencyLevel.STRONG, {})
VERBS: dict[str, list[Callable[[Bench], Any]]] = {
    "writing": [
        lambda b: b.verbs.insert(Insert(of(b), "", rows())),
        lambda b: b.verbs.upsert(Insert(of(b), "", rows())),
        lambda b: b.verbs.delete(Delete(of(b), "", "pk in [1]")),
        lambda b: b.verbs.start_import("default", NAME, "", ["a.parquet"]),
        lambda b: b.verbs.truncate_collection("default", NAME),
    ],
    "reading": [
        lambda b: b.verbs.query(Query(of(b), (), "pk in [1]", ("pk",), None, 0, STRONG)),
        lambda b: Snapshots(lambda: b.proxy, NoSnapshots()).take("default", NAME, (), 1, 1.0),  # type: ignore[arg-type]
    ],
    "ddl": [
        lambda b: b.verbs.drop_collection("default", NAME),
        lambda b: b.verbs.create_partition("default", NAME, "p"),
        lambda b: b.verbs.drop_partition("default", NAME, "p"),
        lambda b: b.verbs.create_index("default", NAME, "v0", "", {}),
        lambda b: b.verbs.drop_index("default", NAME, "v0", ""),
        lambda b: b.verbs.load(LoadRequest("default", NAME)),
        lambda b: b.verbs.release("default", NAME, ()),
        lambda b: b.verbs.flush("default", [NAME]),
        lambda b: b.verbs.compact("default", NAME, 0),
        lambda b: b.verbs.compact("default", "", PLAIN.collection_id),
        lambda b: b.verbs.truncate_collection("default", NAME),
    ],
}
OF_DATABASES: list[Callable[[Bench], Any]] = [
    lambda b: b.verbs.create_collection(CREATE),
    lambda b: b.verbs.create_alias("default", NAME, "a"),
    lambda b: b.verbs.alter_alias("default", NAME, "a"),
    lambda b: b.verbs.drop_alias("default", "a"),
    lambda b: b.verbs.rename_collection("default", NAME, "other", ""),
]


@pytest.mark.parametrize("action", VERBS)
@pytest.mark.parametrize("level", ["database", "collection"])
def test_a_switch_denies_its_verbs_and_does_nothing(action: str, level: str) -> None:
    switch = f"{level}.force.deny.{action}"
    verbs = [*VERBS[action], *(OF_DATABASES if (level, action) == ("database", "ddl") else ())]

    def work(bench: Bench) -> None:
        for verb in verbs:
            with pytest.raises(ForceDenied, match="access has been disabled by the administrator") as error:
                verb(bench)
            assert switch in error.value.message
            assert error.value.code == 9

    done = in_a_thread(work, {switch: "true"} if level == "database" else None, **{switch: "true"})
    assert done.messages() == []
    assert done.data.calls.of("flush") == []
    looks = {"describe_collection", "collection_by_id", "list_databases"}
    assert {name for name, _ in done.root.calls.asked} <= looks


def test_no_collection_moves_into_a_database_that_denies_definitions() -> None:
    async def databases() -> tuple[Database, ...]:
        closed = Database(DatabaseID(2), "closed", NO_TIMESTAMP, {"database.force.deny.ddl": "true"})
        return (Database(DatabaseID(1), "default", NO_TIMESTAMP, {}), closed)

    def work(bench: Bench) -> None:
        bench.root.list_databases = databases  # type: ignore[method-assign]
        with pytest.raises(ForceDenied, match=r"database\.force\.deny\.ddl"):
            bench.verbs.rename_collection("default", NAME, NAME, "closed")

    assert in_a_thread(work).root.calls.of("rename_collection") == []


def test_a_switch_denies_nothing_else() -> None:
    def work(bench: Bench) -> None:
        VERBS["writing"][0](bench)
        VERBS["reading"][0](bench)

    done = in_a_thread(work, {"database.force.deny.ddl": "true"})
    assert (len(done.messages()), len(done.nodes.asked)) == (1, 1)


def test_a_change_of_a_database_is_in_force_once_the_proxy_was_notified() -> None:
    def work(bench: Bench) -> None:
        insert = VERBS["writing"][0]
        insert(bench)
        insert(bench)
        assert len(bench.root.calls.of("list_databases")) == 1
        bench.root.database_properties = {"database.force.deny.writing": "true"}
        bench.proxy.call(bench.proxy.invalidate_databases())
        with pytest.raises(ForceDenied):
            insert(bench)

    assert len(in_a_thread(work).messages()) == 2


def test_an_insert_over_the_rate_is_refused_and_writes_nothing() -> None:
    def work(bench: Bench) -> None:
        insert = VERBS["writing"][0]
        insert(bench)
        with pytest.raises(RateLimited):
            insert(bench)

    assert len(in_a_thread(work, **{"collection.insertRate.max.mb": "0.0000001"}).messages()) == 1


def test_fresh_properties_count_at_once() -> None:
    world = World()
    assert world.admitted(LIMITED, 10, 5) == 3
    world.now_s = 1.0
    assert world.admitted(with_properties(collection__searchRate__max__vps="10"), 10, 5) == 1


# searches


class Searches(Searching, HybridSearching):
    """The verbs that search."""


def searching(cached: CachedCollection) -> tuple[ReadBench, list[Callable[[], object]]]:
    """A search of two vectors, and a hybrid one of a search more, in the collection."""
    bench = ReadBench()
    verbs = Searches(bench.verbs._current, None, tuple)  # type: ignore[arg-type]
    one = search(collection=cached, queries=np.zeros((2, 2), np.float32))
    both = HybridSearch(cached, (), (one, one), Rrf(), 10, 0, (), -1, ReadConsistency())
    return bench, [lambda: verbs.search(one), lambda: verbs.hybrid_search(both)]


@pytest.mark.parametrize("number", [0, 1])
def test_a_search_that_is_denied_or_over_the_rate_reaches_no_node(number: int) -> None:
    for name, error in (
        ("collection.force.deny.reading", ForceDenied),
        ("collection.searchRate.max.vps", RateLimited),
    ):
        value = "true" if error is ForceDenied else "0"
        base = searchable()
        bench, verbs = searching(replace(base, view=replace(base.view, properties={name: value})))
        with pytest.raises(error):
            verbs[number]()
        assert bench.nodes.asked == []


def test_a_proxy_without_a_share_refuses_what_is_limited_and_nothing_else() -> None:
    """A serving process: the main process admits the read."""
    world = World({Rate.QUERY: 100})
    world.proxies = 0
    assert world.admitted(resolved(PLAIN), 1, 3) == 3
    assert world.admitted(with_properties(collection__searchRate__max__vps="1000"), 1, 3) == 0
