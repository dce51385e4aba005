"""Disk limits of a collection, of a database and of the server: rows are refused, deletes are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from proxy_bench import resolved
from test_admission import NAME, PLAIN, Bench, in_a_thread, of, rows

from elanus.core.errors import DiskLimitExceeded
from elanus.core.ids import CollectionID
from elanus.core.rate_limits import (
    COLLECTION_DISK,
    DATABASE_DISK,
    EVERYTHING,
    Allowed,
    of_collection,
    of_database,
)
from elanus.proxy.api.writes import Delete, Insert
from elanus.proxy.role.disk_limits import KEPT_S, DiskLimits

MB = 1024 * 1024
LIMITED = resolved(replace(PLAIN, properties={COLLECTION_DISK: "10"}))
FREE = resolved(replace(PLAIN, collection_id=CollectionID(777)))


class World:
    """Limits over sizes that the test says. ``asked``: the collections whose sizes were asked for."""

    def __init__(self, server_bytes: float | None = None) -> None:
        self.now_s = 0.0
        self.sizes = {LIMITED.collection_id: 9 * MB, FREE.collection_id: 50 * MB}
        self.asked: list[tuple[CollectionID, ...]] = []
        self.limits = DiskLimits(
            self.stored_bytes, lambda _: tuple(self.sizes), server_bytes, lambda: self.now_s
        )

    def stored_bytes(self, collection_ids: tuple[CollectionID, ...]) -> int:
        self.asked.append(collection_ids)
        return sum(self.sizes[one] for one in collection_ids or self.sizes)


def test_a_collection_may_fill_its_limit_and_no_more() -> None:
    world = World()
    world.limits.check(LIMITED, EVERYTHING, MB)
    with pytest.raises(
        DiskLimitExceeded, match=r"collection .* have 9.0 MB, and collection.disk.* allows 10 MB"
    ) as e:
        world.limits.check(LIMITED, EVERYTHING, MB + 1)
    assert e.value.code == 9
    world.limits.check(FREE, EVERYTHING, 100 * MB)
    assert world.asked == [(LIMITED.collection_id,)], "nothing is asked for without a limit"


def test_a_size_is_asked_for_again_when_it_is_old() -> None:
    world = World()
    for _ in range(100):
        world.limits.check(LIMITED, EVERYTHING, 1)
    assert len(world.asked) == 1
    world.sizes[LIMITED.collection_id] = 11 * MB
    world.now_s = KEPT_S
    with pytest.raises(DiskLimitExceeded):
        world.limits.check(LIMITED, EVERYTHING, 1)


def test_the_collections_of_a_database_share_its_limit() -> None:
    world = World()
    database = of_database({DATABASE_DISK: "60"})
    world.limits.check(FREE, database, MB)
    with pytest.raises(DiskLimitExceeded, match=r"database default have 59.0 MB, and database.diskQuota.mb"):
        world.limits.check(FREE, database, 2 * MB)


def test_all_collections_share_the_limit_of_the_server() -> None:
    with pytest.raises(
        DiskLimitExceeded, match=r"server have 59.0 MB, and rate_limits.disk_max_mb allows 58 MB"
    ):
        World(58.0 * MB).limits.check(FREE, EVERYTHING, 0)


@pytest.mark.parametrize("value", ["-1", "much"])
def test_a_negative_limit_limits_nothing(value: str) -> None:
    assert of_collection({COLLECTION_DISK: value}) == Allowed()


def refused(work: Callable[[Bench], object]) -> bool:
    """Whether a proxy refuses it for a collection whose files have its whole limit."""
    found: list[bool] = []

    def run(bench: Bench) -> None:
        bench.data.sizes_bytes[PLAIN.collection_id] = MB
        try:
            work(bench)
        except DiskLimitExceeded:
            found.append(True)

    in_a_thread(run, None, **{COLLECTION_DISK: "1"})
    return bool(found)


def test_what_adds_rows_is_refused_and_deletes_are_not() -> None:
    assert refused(lambda bench: bench.verbs.insert(Insert(of(bench), "", rows())))
    assert refused(lambda bench: bench.verbs.upsert(Insert(of(bench), "", rows())))
    assert refused(lambda bench: bench.verbs.start_import("default", NAME, "", ["a.parquet"]))
    assert not refused(lambda bench: bench.verbs.delete(Delete(of(bench), "", "pk in [1]")))
