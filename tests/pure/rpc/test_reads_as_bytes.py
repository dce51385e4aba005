"""Reads and their answers survive the way between processes."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from elanus.api.boosts import Boost, Boosts
from elanus.api.query_channel import (
    DqRequest,
    DqResult,
    SealedSegmentsChangeInfo,
    decode_message,
    decode_result,
    encode_message,
    encode_result,
)
from elanus.api.querynode import NodeHits, NodeQuery, NodeSearch, NodeStatistics
from elanus.channels.read_codec import NodeCount, decode_answer, decode_read, encode_answer, encode_read
from elanus.core.aggregation import Aggregate, Aggregation
from elanus.core.errors import Internal, InvalidFilter
from elanus.core.function_chains import Call, Chain, Chains, Limit, Map, Sort
from elanus.core.grouping import Grouping
from elanus.core.ids import CollectionID, FieldID, NodeID, PartitionID, SegmentID
from elanus.core.json_keys import JsonKey
from elanus.core.ordering import OrderBy
from elanus.core.reduce import PrimaryKeys
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.term_statistics import TermStatistics
from elanus.core.timestamps import Timestamp
from elanus.expr import compile_filter

SCHEMA = CollectionSchema(
    "things",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "name", DataType.VARCHAR, max_length=10),
        FieldSchema(FieldID(102), "vector", DataType.FLOAT_VECTOR, dim=4),
    ),
)


def compiled(text: str, values: object = None) -> object:
    return compile_filter(text, SCHEMA, values)  # type: ignore[arg-type]


def search() -> NodeSearch:
    return NodeSearch(
        collection_id=CollectionID(7),
        partition_ids=(PartitionID(1),),
        field_id=FieldID(102),
        queries=np.arange(8, dtype=np.float32).reshape(2, 4),
        k=3,
        metric_type="L2",
        params={"ef": 64, "radius": 1.5, "x": "y", "flag": True},
        filter=compile_filter("name in {names} and id > {low}", SCHEMA, {"names": ["a", "b"], "low": 5}),
        output_fields=("name",),
        read_ts=Timestamp(2**60),
        ignore_growing=True,
        answer_bytes_max=1 << 30,
        expired_until=Timestamp(2**59),
    )


def test_a_search_arrives_as_it_was() -> None:
    sent = search()
    got = decode_read(encode_read(sent), compiled)  # type: ignore[arg-type]
    assert isinstance(got, NodeSearch)
    assert got.queries.dtype == np.float32
    assert np.array_equal(got.queries, sent.queries)
    assert got.filter.explain() == sent.filter.explain()
    for name in ("collection_id", "partition_ids", "field_id", "k", "metric_type", "params", "output_fields"):
        assert getattr(got, name) == getattr(sent, name)
    assert (got.read_ts, got.ignore_growing) == (sent.read_ts, True)
    assert (got.answer_bytes_max, got.expired_until) == (1 << 30, 2**59)


def test_integers_of_more_than_64_bits_arrive_as_the_doubles_that_they_count_as() -> None:
    """A client may send them as parameters, and in templates among values inside JSON."""
    schema = replace(SCHEMA, fields=(*SCHEMA.fields, FieldSchema(FieldID(103), "document", DataType.JSON)))
    largest = 2**64 - 1
    text, values = 'document["x"] in {of}', {"of": [10**30, -(10**30), largest, 1, "a"]}
    sent = replace(
        search(),
        params={"radius": 10**30, "range_filter": -(10**30), "ef": 64},
        filter=compile_filter(text, schema, values),
    )
    query = NodeQuery(CollectionID(7), (), sent.filter, None, ("name",), None, Timestamp(5))
    for read in (sent, query, NodeCount(query)):
        got = decode_read(encode_read(read), lambda text, values: compile_filter(text, schema, values))
        found = got.query if isinstance(got, NodeCount) else got
        assert isinstance(found, NodeSearch | NodeQuery)
        assert found.filter.values == {"of": [1e30, -1e30, largest, 1, "a"]}
    arrived = decode_read(encode_read(sent), lambda text, values: compile_filter(text, schema, values))
    assert isinstance(arrived, NodeSearch)
    assert arrived.params == {"radius": 1e30, "range_filter": -1e30, "ef": 64}
    assert np.array_equal(arrived.queries, sent.queries)


def test_statistics_and_their_answer_arrive_as_they_were() -> None:
    terms = np.array([1, 2**32 - 2], dtype=np.uint32)
    sent = NodeStatistics(CollectionID(7), FieldID(101), terms, Timestamp(5), Timestamp(2**59))
    got = decode_read(encode_read(sent), compiled)  # type: ignore[arg-type]
    assert isinstance(got, NodeStatistics)
    assert got.terms.tolist() == terms.tolist()
    assert replace(got, terms=terms) == sent
    answer = decode_answer(encode_answer(TermStatistics(3, 40, np.array([0, 2]))))
    assert isinstance(answer, TermStatistics)
    assert (answer.rows, answer.length, answer.having.tolist()) == (3, 40, [0, 2])


def test_binary_vectors_keep_their_type() -> None:
    sent = search()
    sent = replace(sent, queries=np.array([[1, 255]], dtype=np.uint8))
    got = decode_read(encode_read(sent), compiled)  # type: ignore[arg-type]
    assert isinstance(got, NodeSearch)
    assert got.queries.tolist() == [[1, 255]]
    assert got.queries.dtype == np.uint8


@pytest.mark.parametrize(
    "keys", [None, pa.array([3, 1], pa.int64()), pa.array(["x"]), pa.array([], pa.int64())]
)
@pytest.mark.parametrize("limit", [None, 0, 7])
def test_a_query_and_a_count_arrive_as_they_were(keys: pa.Array | None, limit: int | None) -> None:
    query = NodeQuery(CollectionID(7), (), compile_filter("", SCHEMA), keys, ("name",), limit, Timestamp(5))
    got = decode_read(encode_read(query), compiled)  # type: ignore[arg-type]
    assert isinstance(got, NodeQuery)
    assert got.filter.matches_all
    assert (got.limit, got.read_ts, got.ignore_growing) == (limit, 5, False)
    assert got.answer_bytes_max is None
    assert got.primary_keys is None if keys is None else got.primary_keys.equals(keys)
    counted = decode_read(encode_read(NodeCount(query)), compiled)  # type: ignore[arg-type]
    assert isinstance(counted, NodeCount)
    assert counted.query.limit == limit
    expiring = replace(query, expired_until=Timestamp(3))
    for sent in (expiring, NodeCount(expiring)):
        arrived = decode_read(encode_read(sent), compiled)  # type: ignore[arg-type]
        assert (arrived.query if isinstance(arrived, NodeCount) else arrived).expired_until == 3  # type: ignore[union-attr]


def test_a_read_of_a_proxy_that_knows_no_expiry_has_none() -> None:
    read = msgspec.msgpack.decode(encode_read(search()))
    del read["common"]["expired_until"]
    got = decode_read(msgspec.msgpack.encode(read), compiled)  # type: ignore[arg-type]
    assert isinstance(got, NodeSearch)
    assert got.expired_until == 0


def test_a_filter_that_does_not_fit_the_schema_where_it_arrives_is_refused_there() -> None:
    other = CollectionSchema("things", SCHEMA.fields[:1] + SCHEMA.fields[2:])
    with pytest.raises(InvalidFilter):
        decode_read(encode_read(search()), lambda text, values: compile_filter(text, other, values))


@pytest.mark.parametrize("ids", [pa.array(["b", "a"]), np.array([-5, 2**62])])
def test_hits_arrive_as_they_were(ids: PrimaryKeys) -> None:
    hits = NodeHits(
        "IP",
        np.array([0, 2, 2]),
        ids,
        np.array([0.5, 0.25], dtype=np.float32),
        {"name": pa.array(["n", None])},
    )
    got = decode_answer(encode_answer(hits))
    assert isinstance(got, NodeHits)
    assert got.metric_type == "IP"
    assert got.offsets.tolist() == [0, 2, 2]
    assert got.scores.tolist() == [0.5, 0.25]
    assert type(got.ids) is type(ids)
    assert got.ids.tolist() == ids.tolist()
    assert got.fields["name"].to_pylist() == ["n", None]


def test_rows_and_counts_arrive_as_they_were() -> None:
    rows = {"id": pa.array([], pa.int64()), "name": pa.array([], pa.string())}
    got = decode_answer(encode_answer(rows))
    assert isinstance(got, dict)
    assert got["name"].type == pa.string()
    assert decode_answer(encode_answer(12)) == 12


def test_what_nobody_wrote_is_refused() -> None:
    for decode in (decode_answer, decode_result, decode_message):
        with pytest.raises(Internal):
            decode(b"\xc1nonsense")
    with pytest.raises(Internal):
        decode_read(b"nonsense", compiled)  # type: ignore[arg-type]


def test_channel_messages_arrive_as_they_were() -> None:
    request = DqRequest(3, NodeID(1), "results-1", CollectionID(7), 1.5, b"read")
    change = SealedSegmentsChangeInfo(
        CollectionID(7), 4, {SegmentID(1): NodeID(2)}, {SegmentID(9): NodeID(3)}, {"v": NodeID(2)}
    )
    result = DqResult(3, NodeID(2), 4, ("v",), (SegmentID(1),), (SegmentID(1),), 99, ("", ""), b"answer")
    assert decode_message(encode_message(request)) == request
    assert decode_message(encode_message(change)) == change
    assert decode_result(encode_result(result)) == result


def test_grouping_and_boosts_arrive_as_they_were() -> None:
    boosts = Boosts(
        (
            Boost(
                compile_filter("id > {low}", SCHEMA, {"low": 5}),
                0.5,
                is_random=True,
                seed=-3,
                random_field="id",
            ),
        ),
        "sum",
        "multiply",
    )
    inside = JsonKey("doc['a'][0]", "doc", ("a", 0), DataType.INT8, strict=True)
    grouping = Grouping(("name", "doc"), 3, strict=True, inside=inside)
    sent = replace(search(), grouping=grouping, candidates_max=77, boosts=boosts)
    got = decode_read(encode_read(sent), compiled)  # type: ignore[arg-type]
    assert isinstance(got, NodeSearch)
    assert (got.grouping, got.candidates_max) == (sent.grouping, 77)
    assert got.boosts is not None
    assert got.boosts.functions[0].filter.explain() == boosts.functions[0].filter.explain()
    without = replace(got.boosts.functions[0], filter=boosts.functions[0].filter)
    assert replace(got.boosts, functions=(without,)) == boosts


def test_function_chains_arrive_as_they_were() -> None:
    params: dict[str, float | str | tuple[float, ...]] = {"mode": "weighted", "weights": (0.5, 1.0)}
    scored = Map("$score", Call("num_combine", ("$score", "id"), params))
    chains = Chains(
        segment=Chain((scored,), ("id",)),
        node=Chain((scored, Sort("$score", descending=True, tie_break="$id"), Limit(5, 2)), ("id",)),
    )
    got = decode_read(encode_read(replace(search(), chains=chains)), compiled)  # type: ignore[arg-type]
    assert isinstance(got, NodeSearch)
    assert got.chains == chains


def test_an_order_and_an_aggregation_arrive_as_they_were() -> None:
    aggregation = Aggregation(
        ("name",), (Aggregate("avg", "id", "AVG(id)"), Aggregate("count", "*", "count(*)"))
    )
    plain = compile_filter("", SCHEMA)
    sent = NodeQuery(CollectionID(7), (), plain, None, ("name",), 5, Timestamp(9))
    for read in (
        replace(sent, order=(OrderBy("name", descending=True, nulls_first=True), OrderBy("id"))),
        replace(sent, aggregation=aggregation),
    ):
        got = decode_read(encode_read(read), compiled)  # type: ignore[arg-type]
        assert isinstance(got, NodeQuery)
        assert (got.order, got.aggregation) == (read.order, read.aggregation)
