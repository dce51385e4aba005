"""Each read says which rows have expired for it: by its own timestamp, and the time-to-live as it is now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from fakes import CID, DEFAULT, FakeIndexCoord, FakeRoot, collection, schema
from read_bench import NOW, Bench, cached, query, search

from elanus.core.consistency import ConsistencyLevel, ReadConsistency
from elanus.core.time_to_live import TTL_PROPERTY
from elanus.core.timestamps import compose
from elanus.proxy.api.search import IteratorPage
from elanus.proxy.role.cache import CachedCollection, MetaCache
from elanus.proxy.verbs.query import matching_keys


def expiring(seconds: str = "30") -> CachedCollection:
    known = cached()
    return replace(known, view=replace(known.view, properties={TTL_PROPERTY: seconds}))


def test_a_search_and_a_query_say_what_has_expired() -> None:
    bench = Bench()
    bench.verbs.search(search(collection=expiring()))
    bench.verbs.query(query(collection=expiring()))
    bench.verbs.query(query(collection=expiring(), output_fields=("count(*)",)))
    bench.verbs.query(query(collection=expiring(), filter="", ids=[1, 2]))
    assert len(bench.nodes.asked) == 4
    for asked in bench.nodes.asked:
        assert (asked.read_ts, asked.expired_until) == (NOW, compose(70_000))


@pytest.mark.parametrize("of", [cached(), expiring("0"), expiring("-1"), expiring("101")])
def test_nothing_expires_without_a_time_to_live_or_before_it_is_over(of: CachedCollection) -> None:
    bench = Bench()
    bench.verbs.search(search(collection=of))
    bench.verbs.query(query(collection=of))
    assert [asked.expired_until for asked in bench.nodes.asked] == [0, 0]


def test_a_pinned_read_sees_what_had_not_expired_at_its_moment() -> None:
    bench = Bench()
    pinned = ReadConsistency(guarantee_ts=compose(90_000), pinned=True)
    bench.verbs.query(query(collection=expiring(), consistency=pinned))
    (asked,) = bench.nodes.asked
    assert (asked.read_ts, asked.expired_until) == (compose(90_000), compose(60_000))


def test_pages_of_a_search_iterator_say_what_has_expired() -> None:
    bench = Bench()
    bench.verbs.search(search(collection=expiring(), page=IteratorPage(size=1)))
    assert [asked.expired_until for asked in bench.nodes.asked] == [compose(70_000)]


def truncated(at_ms: int) -> CachedCollection:
    known = cached()
    return replace(known, view=replace(known.view, truncated=compose(at_ms)))


def test_rows_older_than_a_truncation_have_expired() -> None:
    bench = Bench()
    bench.verbs.query(query(collection=truncated(60_000)))
    pinned = ReadConsistency(guarantee_ts=compose(59_000), pinned=True)
    bench.verbs.query(query(collection=truncated(60_000), consistency=pinned))
    assert [asked.expired_until for asked in bench.nodes.asked] == [compose(60_000), 0]


def test_no_read_as_of_now_is_from_before_a_truncation() -> None:
    bench = Bench(retention_s=600.0)
    bench.nodes.served = compose(40_000)
    eventually = ReadConsistency(ConsistencyLevel.EVENTUALLY)
    bench.verbs.query(query(collection=cached(), consistency=eventually))
    bench.verbs.query(query(collection=truncated(60_000), consistency=eventually))
    first, second = bench.nodes.asked
    assert first.read_ts == compose(40_000)
    assert second.read_ts >= compose(60_000)


def test_no_weak_read_is_of_a_moment_that_compaction_may_have_changed() -> None:
    bench = Bench(retention_s=40.0)
    bench.nodes.served = compose(69_999)
    eventually = ReadConsistency(ConsistencyLevel.EVENTUALLY)
    bench.verbs.query(query(collection=cached(), consistency=eventually))
    bench.nodes.served = compose(70_001)
    bench.verbs.query(query(collection=cached(), consistency=eventually))
    first, second = bench.nodes.asked
    assert first.read_ts == compose(70_000)
    assert [ts for ts, _ in bench.nodes.waited] == [compose(70_000)]
    assert second.read_ts == compose(70_001)


def test_a_delete_by_filter_finds_no_expired_rows() -> None:
    bench = Bench()
    bench.nodes.rows = {"pk": pa.array([1, 2])}
    steps = matching_keys(bench.reads, expiring(), "price > 0", {}, "", 2)
    for _ in range(2):
        next(steps)
    assert [asked.expired_until for asked in bench.nodes.asked] == [compose(70_000)] * 2


async def test_an_altered_time_to_live_holds_for_the_next_read() -> None:
    root = FakeRoot(collection(schema(), partitions=(DEFAULT,)))
    cache = MetaCache(root, FakeIndexCoord())
    bench: Any = Bench()

    async def read() -> int:
        known = cache.get("default", "c") or await cache.fill("default", "c")
        bench.verbs.query(query(collection=known))
        expired_until: int = bench.nodes.asked[-1].expired_until
        return expired_until

    assert await read() == 0
    for seconds, expected in (("30", compose(70_000)), ("60", compose(40_000)), ("0", 0)):
        root.collections[CID] = replace(root.collections[CID], properties={TTL_PROPERTY: seconds})
        cache.invalidate(CID)  # `alter_collection` of the root coordinator waits for it
        assert await read() == expected
