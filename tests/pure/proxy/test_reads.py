"""A read through the proxy: one moment, fixed before anybody is asked; and the result's last cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fakes import OTHER, schema
from hypothesis import given
from hypothesis import strategies as st
from read_bench import FIRST_WAIT_S, NOW, Bench, L, Nodes, a_query_each, cached, query, search

from elanus.core.buckets import BestHits, Bucket, BucketLevel, BucketMetric, bucket_grouping
from elanus.core.consistency import ConsistencyLevel, ReadConsistency
from elanus.core.errors import (
    ChannelRewound,
    CollectionNotLoaded,
    DeadlineExceeded,
    DiskFull,
    IndexNotFound,
    InvalidFilter,
    InvalidParameter,
    PartitionNotFound,
    TaskQueueFull,
    TimestampTooOld,
)
from elanus.core.grouping import Grouping
from elanus.core.ids import CollectionID, FieldID
from elanus.core.ordering import OrderBy
from elanus.core.requests import RequestLimits
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp, compose
from elanus.proxy.api.query import Query
from elanus.proxy.api.search import IteratorPage, Search
from elanus.proxy.fanout.deadline import Patience
from elanus.proxy.verbs.query import matching_keys

TWO = np.zeros((2, 2), np.float32)
PCHANNELS = ("by-dev-rootcoord-dml_0",)

# the moment


@pytest.mark.parametrize(
    ("level", "served", "read_at", "waits"),
    [
        (L.STRONG, compose(99_999), NOW, True),
        (L.BOUNDED, compose(96_000), compose(96_000), False),
        (L.BOUNDED, compose(95_000), compose(95_000), False),
        (L.BOUNDED, compose(94_999), compose(95_000), True),
        (L.EVENTUALLY, compose(3), compose(3), False),
        (L.EVENTUALLY, Timestamp(0), Timestamp(1), True),
    ],
)
def test_a_read_is_as_of_what_is_served_or_of_what_it_demands(
    level: ConsistencyLevel, served: Timestamp, read_at: Timestamp, waits: bool
) -> None:
    bench = Bench(Nodes(served), retention_s=600.0)
    result = bench.verbs.search(search(consistency=ReadConsistency(level)))
    assert result.ts == bench.nodes.asked[0].read_ts == read_at
    assert bench.nodes.waited == ([(read_at, FIRST_WAIT_S)] if waits else [])
    assert bench.ticks.requested == ([(PCHANNELS, read_at)] if waits else [])


def test_a_session_reads_its_own_writes() -> None:
    written = compose(99_000)
    bench = Bench(Nodes(compose(98_000)))
    bench.verbs.query(query(consistency=ReadConsistency(L.SESSION, written)))
    assert bench.nodes.waited == [(written, FIRST_WAIT_S)]


def test_a_timestamp_ahead_of_now_is_waited_for_without_asking_for_a_tick() -> None:
    """No tick can pass it before its time, and asking for one goes on until it does."""
    soon = compose(106_000)
    bench = Bench()
    result = bench.verbs.query(query(consistency=ReadConsistency(L.CUSTOMIZED, soon)))
    assert bench.nodes.waited == [(soon, FIRST_WAIT_S)]
    assert bench.nodes.asked[0].read_ts == result.ts == soon
    assert bench.ticks.requested == []


def test_a_timestamp_that_no_read_can_wait_for_is_refused_at_once() -> None:
    bench = Bench()
    with pytest.raises(InvalidParameter, match=r"guarantee_timestamp .* is 20 s in the future.* 2 s at most"):
        bench.verbs.query(query(consistency=ReadConsistency(L.CUSTOMIZED, compose(120_000)), timeout_s=2.0))
    assert bench.nodes.waited == []


@pytest.mark.parametrize("asked", [L.BOUNDED, None])
def test_a_bounded_read_sees_the_last_write_of_its_own_client(asked: ConsistencyLevel | None) -> None:
    bench = Bench(Nodes(compose(98_000)))
    written = compose(99_000)
    bench.own_writes.note("mine", cached().collection_id, written)
    bench.verbs.query(query(consistency=ReadConsistency(asked, client="theirs")))
    bench.verbs.query(query(consistency=ReadConsistency(asked)))
    assert (bench.nodes.waited, bench.ticks.requested) == ([], [])
    result = bench.verbs.search(search(consistency=ReadConsistency(asked, client="mine")))
    assert bench.nodes.waited == [(written, FIRST_WAIT_S)]
    assert result.ts == bench.nodes.asked[-1].read_ts == written


def test_an_eventual_read_waits_for_no_write() -> None:
    bench = Bench(Nodes(compose(98_000)))
    bench.own_writes.note("mine", cached().collection_id, compose(99_000))
    result = bench.verbs.query(query(consistency=ReadConsistency(L.EVENTUALLY, client="mine")))
    assert (result.ts, bench.nodes.waited) == (compose(98_000), [])


def test_without_a_level_the_collections_own_decides() -> None:
    bench = Bench(Nodes(compose(98_000)))
    bench.verbs.query(query(collection=cached(level=L.STRONG), consistency=ReadConsistency()))
    assert bench.nodes.waited == [(NOW, FIRST_WAIT_S)]


def test_a_delete_by_filter_sees_every_write_before_it() -> None:
    bench = Bench(Nodes(compose(99_999)))
    (keys,) = matching_keys(bench.reads, cached(level=L.EVENTUALLY), "price > 3", {}, "p1", 100)
    assert keys.to_pylist() == [1, 2, 3, 4]
    assert bench.nodes.waited == [(NOW, FIRST_WAIT_S)]
    assert (bench.nodes.asked[0].partition_ids, bench.nodes.asked[0].output_fields) == ((OTHER,), ("pk",))


def test_what_is_not_loaded_is_said_before_anything_waits() -> None:
    bench = Bench(Nodes(Timestamp(-1)))
    with pytest.raises(CollectionNotLoaded):
        bench.verbs.search(search())
    assert bench.ticks.requested == []


def test_a_read_that_waited_in_vain_frees_its_slot() -> None:
    bench = Bench(Nodes(Timestamp(0)), now=compose(300_000), reads_max=1)
    for _ in range(2):
        with pytest.raises(DeadlineExceeded):
            bench.verbs.search(search(consistency=ReadConsistency(L.STRONG)))


def test_a_read_for_which_the_log_has_no_room_says_so_and_waits_a_second_at_most() -> None:
    bench = Bench(Nodes(Timestamp(0)), now=compose(300_000))
    bench.ticks.log_full = "no room left for the log"
    with pytest.raises(DiskFull, match=r"time tick, which the log cannot take: no room left.*Eventually"):
        bench.verbs.search(search(consistency=ReadConsistency(L.STRONG)))
    assert bench.nodes.waited == [(compose(300_000), 1.0)]
    assert len(bench.measures.waits_s) == 1


def test_a_read_whose_channel_takes_no_ticks_says_so_and_waits_a_second_at_most() -> None:
    bench = Bench(Nodes(Timestamp(0)), now=compose(300_000))
    bench.ticks.rewound[PCHANNELS] = "nothing is written to dml_0: an older copy"
    with pytest.raises(ChannelRewound, match=r"waits for a time tick: nothing is written to dml_0"):
        bench.verbs.search(search(consistency=ReadConsistency(L.STRONG)))
    assert bench.nodes.waited == [(compose(300_000), 1.0)]


def test_a_read_waits_on_when_the_log_has_room_again() -> None:
    bench = Bench(Nodes(Timestamp(0)), now=compose(300_000))
    bench.ticks.log_full = "no room left for the log"
    wait = bench.nodes.wait_service_time

    def freed(collection_id: int, ts: Timestamp, patience: Patience) -> None:
        bench.ticks.log_full = ""
        wait(collection_id, ts, patience)

    bench.nodes.wait_service_time = freed  # type: ignore[method-assign]
    with pytest.raises(DeadlineExceeded):
        bench.verbs.search(search(consistency=ReadConsistency(L.STRONG)))
    assert [waits_s for _, waits_s in bench.nodes.waited] == [1.0, 2.0, 4.0]


@pytest.mark.parametrize(("own_s", "waits_s"), [(None, 7.0), (1.5, 1.5), (3600.0, 7.0)])
def test_a_read_waits_no_longer_than_its_client(own_s: float | None, waits_s: float) -> None:
    bench = Bench(Nodes(Timestamp(0)), now=compose(300_000))
    strong = ReadConsistency(L.STRONG)
    with pytest.raises(DeadlineExceeded):
        bench.verbs.query(query(consistency=strong, timeout_s=own_s))
    with pytest.raises(DeadlineExceeded):
        bench.verbs.search(search(consistency=strong, timeout_s=own_s))
    assert bench.measures.waits_s == [waits_s] * 2


def test_a_wait_in_vain_is_measured_too() -> None:
    bench = Bench(Nodes(Timestamp(0)), now=compose(300_000))
    with pytest.raises(DeadlineExceeded):
        bench.verbs.query(query(consistency=ReadConsistency(L.STRONG)))
    assert len(bench.measures.waits_s) == 1


def test_reads_beyond_the_limit_are_refused() -> None:
    bench = Bench(reads_max=1)
    bench.queue.enter()
    with pytest.raises(TaskQueueFull):
        bench.verbs.query(query())
    bench.queue.leave()
    bench.verbs.query(query())


def test_a_read_that_fails_makes_room_for_the_next() -> None:
    bench = Bench(reads_max=1)
    with pytest.raises(InvalidParameter):
        bench.verbs.search(search(vector_field="nope"))
    bench.verbs.search(search())


# what is asked of the nodes


def test_a_search_covers_its_offset_and_names_ids() -> None:
    bench = Bench()
    bench.verbs.search(search(limit=10, offset=5, partitions=("p1", "p1"), metric_type="l2"))
    (asked,) = bench.nodes.asked
    assert (asked.k, asked.partition_ids, asked.field_id, asked.metric_type) == (15, (OTHER,), 102, "L2")
    assert (asked.output_fields, asked.params) == (("price",), {"ef": 50})


@pytest.mark.parametrize(
    ("request_", "of", "error"),
    [
        (search(vector_field="price"), schema(), InvalidParameter),
        (search(vector_field="nope"), schema(), InvalidParameter),
        (search(), schema(vectors=2), InvalidParameter),
        (search(vector_field="v1"), schema(vectors=2), IndexNotFound),
        (search(metric_type="IP"), schema(), InvalidParameter),
        (search(partitions=("nope",)), schema(), PartitionNotFound),
        (search(output_fields=("nope",)), schema(), InvalidParameter),
    ],
)
def test_an_invalid_search_is_refused_before_it_reaches_the_nodes(
    request_: Search, of: CollectionSchema, error: type[Exception]
) -> None:
    bench = Bench()
    with pytest.raises(error):
        bench.verbs.search(replace(request_, collection=cached(of)))
    assert bench.nodes.asked == []


def test_a_search_that_asks_for_too_many_hits_in_all_is_refused_before_it_reaches_the_nodes() -> None:
    bench = Bench(limits=RequestLimits(search_hits_max=60))
    three = np.zeros((3, 2), np.float32)
    bench.verbs.search(search(queries=three, limit=15, offset=5))
    with pytest.raises(InvalidParameter, match=r"3 \* 21 = 63.*at most 60 hits.*proxy\.search_hits_max"):
        bench.verbs.search(search(queries=three, limit=15, offset=6))
    assert len(bench.nodes.asked) == 1


def test_an_answer_whose_output_is_too_large_is_refused() -> None:
    texts = pa.array(["x" * 1024] * 2048)
    bench = Bench(Nodes(hits=replace(a_query_each(2048), fields={"price": texts})))
    bench.nodes.rows = {"pk": pa.array(range(2048)), "price": texts}
    for answer_bytes_max, fits in ((3 << 20, True), (2 << 20, False)):
        bench.verbs._proxy.limits = RequestLimits(answer_bytes_max=answer_bytes_max)
        for ask in (lambda: bench.verbs.search(search()), lambda: bench.verbs.query(query())):
            if fits:
                ask()
                continue
            with pytest.raises(InvalidParameter, match=r"2048 rows take 2.0 MB.*2 MB.*proxy\.answer_max_mb"):
                ask()
    assert {request.answer_bytes_max for request in bench.nodes.asked} == {2 << 20, 3 << 20}


def test_a_search_of_what_is_not_loaded_says_so_even_without_an_index() -> None:
    bench = Bench(Nodes(served=Timestamp(-1)))
    with pytest.raises(CollectionNotLoaded):
        bench.verbs.search(search(collection=cached(indexed=False), metric_type="IP"))


def test_a_missing_partition_is_refused_in_the_words_for_reads() -> None:
    with pytest.raises(PartitionNotFound, match=r"^partition name nope not found$"):
        Bench().verbs.query(query(partitions=("_default", "nope")))


@pytest.mark.parametrize(
    ("name", "text"),
    [("", "should not be empty"), ("  ", "should not be empty"), ("p" * 300, "must be less than 255")],
)
def test_a_name_that_no_partition_can_have_is_refused_in_reads(name: str, text: str) -> None:
    with pytest.raises(InvalidParameter, match=f"^Invalid partition name: .*{text}"):
        Bench().verbs.query(query(partitions=("_default", name)))


def test_hits_of_binary_vectors_are_not_grouped() -> None:
    of = schema()
    bits = replace(of.field("v0"), data_type=DataType.BINARY_VECTOR, dim=8)
    of = replace(of, fields=tuple(bits if f.name == "v0" else f for f in of.fields))
    asked = search(collection=cached(of), vector_field="v0", grouping=Grouping(("pk",)))
    with pytest.raises(InvalidParameter, match=r"^not support search_group_by operation based on binary vec"):
        Bench().verbs.search(asked)


def test_buckets_are_made_of_the_hits_of_a_grouping_search() -> None:
    bench = Bench(Nodes(hits=a_query_each(2, 1)))
    level = BucketLevel(("pk",), 1, 3, (BucketMetric("n", "sum", "price"),), best=BestHits(12))
    bench.nodes.hits = replace(
        bench.nodes.hits, fields={**bench.nodes.hits.fields, "pk": pa.array([5, 5, 6])}
    )
    grouping, groups = bucket_grouping((level,))
    result = bench.verbs.search(search(levels=(level,), grouping=grouping, limit=groups, queries=TWO))
    (asked,) = bench.nodes.asked
    assert (asked.k, asked.grouping) == (3, Grouping(("pk",), 12, strict=True))
    assert set(asked.output_fields) == {"price", "pk"}
    assert result.buckets == (
        (Bucket((5,), 2, {"n": 1.0}, (0, 1), ()),),
        (Bucket((6,), 1, {"n": 2.0}, (2,), ()),),
    )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"page": IteratorPage(10)}, "search iterator is not supported with search_aggregation"),
        ({"order": (OrderBy("price"),)}, "order_by_fields is not supported with search_aggregation"),
    ],
)
def test_an_order_and_an_iterator_contradict_buckets(changes: dict[str, Any], text: str) -> None:
    level = BucketLevel(("pk",), 1, 1)
    with pytest.raises(InvalidParameter, match=text):
        Bench().verbs.search(search(levels=(level,), **changes))


def test_an_order_goes_with_groups_of_one_field_only() -> None:
    asked = search(order=(OrderBy("price"),), grouping=Grouping(("pk", "price")))
    with pytest.raises(InvalidParameter, match=r"^order_by_fields is not supported with multi-field"):
        Bench().verbs.search(asked)


@pytest.mark.parametrize("text", ["", "  "])
def test_a_query_of_all_rows_without_a_limit_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match="empty expression should be used with limit"):
        Bench().verbs.query(query(filter=text))


def test_a_filter_whose_list_is_empty_is_a_filter_like_any_other() -> None:
    plain = schema()
    tags = FieldSchema(FieldID(0), "tags", DataType.ARRAY, element_type=DataType.INT64, max_capacity=4)
    bench = Bench()
    of = cached(replace(plain, fields=(*plain.fields, replace(tags, field_id=FieldID(120)))))
    bench.verbs.query(
        query(collection=of, filter="array_contains_all(tags, {wanted})", filter_values={"wanted": []})
    )
    assert bench.nodes.asked


def test_a_bad_filter_is_refused_as_a_query_plan() -> None:
    with pytest.raises(
        InvalidFilter, match=r"^failed to create query plan: cannot parse expression: pk inn"
    ) as e:
        Bench().verbs.query(query(filter="pk inn [1]"))
    assert e.value.position == 3


@pytest.mark.parametrize("level", list(L))
def test_pages_of_an_iterator_are_answered_as_of_their_moment(level: ConsistencyLevel) -> None:
    moment = compose(90_000)
    page = ReadConsistency(level, moment, pinned=True)
    bench = Bench()
    assert bench.verbs.search(search(consistency=page)).ts == moment
    assert bench.nodes.asked[0].read_ts == moment
    late = Bench(Nodes(served=compose(80_000)))
    assert late.verbs.query(query(consistency=page, limit=1)).ts == moment
    assert [ts for ts, _ in late.nodes.waited] == [moment]


def test_a_strong_read_asks_no_node_up_to_where_it_serves() -> None:
    """In a cluster that is a message to all nodes, and the answer is always: not as far as now."""
    bench = Bench(Nodes(served=Timestamp(-1)))
    assert bench.verbs.query(query(consistency=ReadConsistency(L.STRONG), limit=1)).ts == NOW


def test_a_read_pinned_beyond_the_retention_time_is_refused() -> None:
    bench = Bench(now=compose(100_000), retention_s=10.0)
    oldest = ReadConsistency(L.STRONG, compose(90_000), pinned=True)
    assert bench.verbs.query(query(consistency=oldest, limit=1)).ts == compose(90_000)
    beyond = ReadConsistency(L.STRONG, compose(89_999), pinned=True)
    with pytest.raises(TimestampTooOld, match=r"10\.001 s back, .* kept for 10 s") as refused:
        bench.verbs.query(query(consistency=beyond, limit=1))
    assert "datacoord.retention_s" in refused.value.message
    assert len(bench.nodes.asked) == 1


def test_a_read_of_the_past_is_as_of_its_moment_whatever_the_guarantee() -> None:
    moment = compose(90_000)
    for level in L:
        bench = Bench()
        asked = ReadConsistency(level, NOW, travel_ts=moment)
        assert bench.verbs.search(search(consistency=asked)).ts == moment
        assert (bench.nodes.asked[0].read_ts, bench.nodes.waited) == (moment, [])


@pytest.mark.parametrize(
    ("moment", "text"),
    [(compose(100_500), r"0\.5 s in the future"), (compose(94_999), "before the collection was created")],
)
def test_a_moment_that_never_was_is_refused(moment: Timestamp, text: str) -> None:
    bench = Bench()
    made = cached()
    young = replace(made, view=replace(made.view, created=compose(95_000)))
    with pytest.raises(InvalidParameter, match=text):
        bench.verbs.query(query(collection=young, consistency=ReadConsistency(travel_ts=moment)))
    assert bench.nodes.asked == []


def test_nothing_retained_leaves_the_present() -> None:
    bench = Bench(retention_s=0)
    assert bench.verbs.query(query(limit=1)).ts == NOW
    with pytest.raises(TimestampTooOld):
        bench.verbs.query(query(consistency=ReadConsistency(L.STRONG, NOW - 1, pinned=True)))


def test_an_iterator_ends_when_its_collections_name_means_another_one() -> None:
    bench = Bench()
    expected = cached().collection_id
    bench.verbs.query(query(collection_id=expected))
    for read in (query(collection_id=CollectionID(expected + 1)), search(collection_id=CollectionID(1))):
        ask = bench.verbs.query if isinstance(read, Query) else bench.verbs.search
        with pytest.raises(InvalidParameter, match="alias or database may have been changed"):
            ask(read)  # type: ignore[operator]


def test_a_query_asks_for_no_more_rows_than_it_needs_and_cuts_its_offset() -> None:
    bench = Bench()
    result = bench.verbs.query(query(limit=3, offset=1))
    assert bench.nodes.asked[0].limit == 4
    assert result.fields["pk"].to_pylist() == [2, 3, 4]
    assert result.output_fields == ("pk", "price")


@pytest.mark.parametrize("name", ["count(*)", "Count(*)", " COUNT(*) "])
def test_a_count_is_one_row_and_asks_for_none(name: str) -> None:
    bench = Bench()
    result = bench.verbs.query(query(output_fields=(name,), filter=""))
    assert {n: c.to_pylist() for n, c in result.fields.items()} == {"count(*)": [17]}


@pytest.mark.parametrize(
    "asked",
    [
        query(filter=""),
        query(output_fields=("count(*)",), limit=5),
        query(filter="", ids=["x"]),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(asked: Query) -> None:
    bench = Bench()
    with pytest.raises(InvalidParameter):
        bench.verbs.query(asked)
    assert bench.nodes.asked == []


@pytest.mark.parametrize("asked", [query(filter="", limit=5), query(filter="", ids=[3, 4])])
def test_an_empty_filter_with_a_limit_or_with_ids_is_one(asked: Query) -> None:
    bench = Bench()
    bench.verbs.query(asked)
    keys = bench.nodes.asked[0].primary_keys
    assert (None if keys is None else keys.to_pylist()) == asked.ids


def test_ids_take_the_type_of_the_primary_key() -> None:
    bench = Bench()
    bench.nodes.rows = {"pk": pa.array(["a"])}
    bench.verbs.query(query(collection=cached(schema(key=DataType.VARCHAR)), filter="", ids=["a"]))
    assert bench.nodes.asked[0].primary_keys.type == pa.string()


# the result


@given(st.lists(st.integers(0, 7), min_size=1, max_size=5), st.integers(0, 8))
def test_each_query_loses_its_first_hits_and_no_other(counts: list[int], offset: int) -> None:
    hits = a_query_each(*counts)
    result = Bench(Nodes(hits=hits)).verbs.search(search(offset=offset))
    expected = [list(range(b, e))[offset:] for b, e in zip(hits.offsets, hits.offsets[1:], strict=False)]
    bounds = list(zip(result.offsets, result.offsets[1:], strict=False))
    assert [result.ids.tolist()[b:e] for b, e in bounds] == expected
    assert result.scores.tolist() == [float(hits.scores[n]) for part in expected for n in part]
    assert result.fields["price"].to_pylist() == [float(n) for part in expected for n in part]


@pytest.mark.parametrize(("decimals", "first"), [(-1, 0.12345), (0, 0.0), (2, 0.12), (4, 0.1234)])
def test_scores_are_rounded_only_when_asked(decimals: int, first: float) -> None:
    result = Bench(Nodes(hits=a_query_each(3))).verbs.search(search(round_decimal=decimals))
    assert result.scores[0] == pytest.approx(first, abs=1e-4 if decimals == 4 else 1e-6)
