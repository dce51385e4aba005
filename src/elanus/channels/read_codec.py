"""The encoding of reads between processes: what a proxy asks of query nodes and what they answer, as bytes.

A read is sent as msgpack, with its vectors as raw little-endian bytes inside. A filter is sent as its text
and template values and is compiled again by the receiver: a bound tree would tie both ends to one release.
Columns of an answer are sent as one Arrow IPC stream, so they are not copied value by value at either end.
When numeric primary keys are all there is to send, there is no stream: its schema costs more than ten of
them.

Synchronous and pure, for the threads that execute the reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from elanus.api.boosts import Boost, Boosts
from elanus.api.querynode import NodeHits, NodeQuery, NodeSearch, NodeStatistics
from elanus.core.aggregation import Aggregation
from elanus.core.errors import Internal
from elanus.core.function_chains import Chains
from elanus.core.grouping import Grouping
from elanus.core.ids import CollectionID, FieldID, PartitionID
from elanus.core.json_keys import double_of
from elanus.core.ordering import OrderBy
from elanus.core.schema import Scalar
from elanus.core.term_statistics import TermStatistics
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.expr import BoundFilter

Compile = Callable[[str, Mapping[str, object]], BoundFilter]
"""Compiles filter text and template values to a filter bound to the collection's schema."""


@dataclass(frozen=True, slots=True)
class NodeCount:
    """Count the rows that a query without a limit would find; duplicates of a primary key count each."""

    query: NodeQuery


@dataclass(frozen=True, slots=True)
class NodeProbe:
    """Ask for nothing but the service time that comes with every answer. It waits for no timestamp."""

    collection_id: CollectionID


Read = NodeSearch | NodeQuery | NodeCount | NodeProbe | NodeStatistics


def read_ts_of(read: Read) -> Timestamp:
    """Return the timestamp that the nodes must serve before they answer; 0: none."""
    if isinstance(read, NodeProbe):
        return NO_TIMESTAMP
    return read.query.read_ts if isinstance(read, NodeCount) else read.read_ts


class _Vectors(msgspec.Struct, array_like=True, frozen=True):
    """A matrix of queries. shape (rows, width), row-major."""

    data: bytes
    dtype: str
    rows: int


class _Common(msgspec.Struct, frozen=True):
    """Fields that have a default were added later: reads of an older proxy do not have them."""

    collection_id: CollectionID
    partition_ids: tuple[PartitionID, ...]
    filter: str
    values: dict[str, object]
    output_fields: tuple[str, ...]
    read_ts: Timestamp
    ignore_growing: bool
    answer_bytes_max: int | None = None
    expired_until: Timestamp = NO_TIMESTAMP
    spared_fields: tuple[str, ...] = ()


class _Boost(msgspec.Struct, frozen=True):
    filter: str
    values: dict[str, object]
    weight: float
    is_random: bool
    seed: int
    random_field: str


class _Boosts(msgspec.Struct, frozen=True):
    functions: tuple[_Boost, ...]
    boost_mode: str
    function_mode: str


class _Search(msgspec.Struct, tag="search", frozen=True):
    """Fields that have a default were added later, as in `_Common`."""

    common: _Common
    field_id: FieldID
    queries: _Vectors
    k: int
    metric_type: str
    params: dict[str, Scalar]
    grouping: Grouping | None = None
    candidates_max: int = 0
    boosts: _Boosts | None = None
    chains: Chains | None = None
    timeout_s: float | None = None


class _Query(msgspec.Struct, tag="query", frozen=True):
    """``counts``: only the number of rows is wanted. ``primary_keys``: an Arrow stream of one column.

    Fields that have a default were added later, as in `_Common`.
    """

    common: _Common
    primary_keys: bytes | None
    limit: int | None
    counts: bool
    order: tuple[OrderBy, ...] = ()
    aggregation: Aggregation | None = None


class _Probe(msgspec.Struct, tag="probe", frozen=True):
    collection_id: CollectionID


class _Statistics(msgspec.Struct, tag="statistics", frozen=True):
    """``terms``: uint32, little-endian."""

    collection_id: CollectionID
    field_id: FieldID
    terms: bytes
    read_ts: Timestamp
    expired_until: Timestamp


class _Hits(msgspec.Struct, tag="hits", frozen=True):
    """``numbers``: numeric primary keys, without Arrow around them; other keys are in ``columns``.

    ``columns`` is empty where there are none.
    """

    metric_type: str
    offsets: bytes
    scores: bytes
    numbers: bytes | None
    columns: bytes


class _Rows(msgspec.Struct, tag="rows", frozen=True):
    columns: bytes


class _Counted(msgspec.Struct, tag="counted", frozen=True):
    """``having``: int64, little-endian."""

    rows: int
    length: int
    having: bytes


class _Count(msgspec.Struct, tag="count", frozen=True):
    rows: int


Answer = NodeHits | Mapping[str, pa.Array] | int | TermStatistics
_IDS = ""
"""The name of the primary-key column next to the output fields, whose names are never empty."""
_reads = msgspec.msgpack.Decoder(_Search | _Query | _Probe | _Statistics)
_answers = msgspec.msgpack.Decoder(_Hits | _Rows | _Count | _Counted)


def encode_read(read: Read) -> bytes:
    if isinstance(read, NodeProbe):
        return msgspec.msgpack.encode(_Probe(read.collection_id))
    if isinstance(read, NodeStatistics):
        terms = np.asarray(read.terms, dtype="<u4").tobytes()
        return msgspec.msgpack.encode(
            _Statistics(read.collection_id, read.field_id, terms, read.read_ts, read.expired_until)
        )
    if isinstance(read, NodeSearch):
        return _encoded(_sent_search(read))
    query = read.query if isinstance(read, NodeCount) else read
    keys = None if query.primary_keys is None else _stream({_IDS: query.primary_keys})
    counts = isinstance(read, NodeCount)
    return _encoded(_Query(_common(query), keys, query.limit, counts, query.order, query.aggregation))


def _encoded(read: _Search | _Query) -> bytes:
    try:
        return msgspec.msgpack.encode(read)
    except OverflowError:  # a parameter or a value inside JSON that a client sent has more than 64 bits
        return msgspec.msgpack.encode(_with_doubles(msgspec.to_builtins(read, builtin_types=(bytes,))))


def _with_doubles(value: Any) -> Any:
    """Return a value with doubles for larger integers than msgpack has: so they are compared anyway."""
    if isinstance(value, dict):
        return {name: _with_doubles(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_doubles(item) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return double_of(value)
    return value


def _sent_search(read: NodeSearch) -> _Search:
    queries = np.ascontiguousarray(read.queries)
    return _Search(
        _common(read),
        read.field_id,
        _Vectors(queries.tobytes(), queries.dtype.str, len(queries)),
        read.k,
        read.metric_type,
        dict(read.params),
        read.grouping,
        read.candidates_max,
        None if read.boosts is None else _sent_boosts(read.boosts),
        read.chains,
        read.timeout_s,
    )


def _sent_boosts(boosts: Boosts) -> _Boosts:
    return _Boosts(
        tuple(
            _Boost(b.filter.text, dict(b.filter.values), b.weight, b.is_random, b.seed, b.random_field)
            for b in boosts.functions
        ),
        boosts.boost_mode,
        boosts.function_mode,
    )


def _received_boosts(boosts: _Boosts, compile_filter: Compile) -> Boosts:
    return Boosts(
        tuple(
            Boost(compile_filter(b.filter, b.values), b.weight, b.is_random, b.seed, b.random_field)
            for b in boosts.functions
        ),
        boosts.boost_mode,
        boosts.function_mode,
    )


def _common(read: NodeSearch | NodeQuery) -> _Common:
    return _Common(
        read.collection_id,
        read.partition_ids,
        read.filter.text,
        dict(read.filter.values),
        read.output_fields,
        read.read_ts,
        read.ignore_growing,
        read.answer_bytes_max,
        read.expired_until,
        read.spared_fields,
    )


def decode_read(data: bytes, compile_filter: Compile) -> Read:
    """Raises `Internal` for bytes that no release of Elanus wrote, and what compiling the filter raises."""
    try:
        read = _reads.decode(data)
    except msgspec.DecodeError as error:
        raise Internal(f"a read cannot be decoded: {error}") from error
    if isinstance(read, _Probe):
        return NodeProbe(read.collection_id)
    if isinstance(read, _Statistics):
        terms = np.frombuffer(read.terms, dtype="<u4")
        return NodeStatistics(read.collection_id, read.field_id, terms, read.read_ts, read.expired_until)
    if isinstance(read, _Search):
        return _received_search(read, compile_filter)
    query = _received_query(read, compile_filter)
    return NodeCount(query) if read.counts else query


def _received_search(read: _Search, compile_filter: Compile) -> NodeSearch:
    common = read.common
    queries = np.frombuffer(read.queries.data, dtype=read.queries.dtype)
    return NodeSearch(
        collection_id=common.collection_id,
        partition_ids=common.partition_ids,
        field_id=read.field_id,
        queries=queries.reshape(read.queries.rows, -1),
        k=read.k,
        metric_type=read.metric_type,
        params=read.params,
        filter=compile_filter(common.filter, common.values),
        output_fields=common.output_fields,
        read_ts=common.read_ts,
        ignore_growing=common.ignore_growing,
        answer_bytes_max=common.answer_bytes_max,
        expired_until=common.expired_until,
        grouping=read.grouping,
        candidates_max=read.candidates_max,
        boosts=None if read.boosts is None else _received_boosts(read.boosts, compile_filter),
        chains=read.chains,
        spared_fields=common.spared_fields,
        timeout_s=read.timeout_s,
    )


def _received_query(read: _Query, compile_filter: Compile) -> NodeQuery:
    common = read.common
    return NodeQuery(
        collection_id=common.collection_id,
        partition_ids=common.partition_ids,
        filter=compile_filter(common.filter, common.values),
        primary_keys=None if read.primary_keys is None else _columns(read.primary_keys)[_IDS],
        output_fields=common.output_fields,
        limit=read.limit,
        read_ts=common.read_ts,
        ignore_growing=common.ignore_growing,
        answer_bytes_max=common.answer_bytes_max,
        expired_until=common.expired_until,
        order=read.order,
        aggregation=read.aggregation,
        spared_fields=common.spared_fields,
    )


def encode_answer(answer: Answer) -> bytes:
    if isinstance(answer, int):
        return msgspec.msgpack.encode(_Count(answer))
    if isinstance(answer, TermStatistics):
        having = np.asarray(answer.having, dtype="<i8").tobytes()
        return msgspec.msgpack.encode(_Counted(answer.rows, answer.length, having))
    if isinstance(answer, NodeHits):
        numbers = answer.ids if isinstance(answer.ids, np.ndarray) else None
        columns = answer.fields if numbers is not None else {_IDS: answer.ids, **answer.fields}
        hits = _Hits(
            answer.metric_type,
            np.asarray(answer.offsets, dtype="<i8").tobytes(),
            np.asarray(answer.scores, dtype="<f4").tobytes(),
            None if numbers is None else np.asarray(numbers, dtype="<i8").tobytes(),
            _stream(columns) if columns else b"",
        )
        return msgspec.msgpack.encode(hits)
    return msgspec.msgpack.encode(_Rows(_stream(answer)))


def decode_answer(data: bytes) -> Answer:
    """Raises `Internal` for bytes that no release of Elanus wrote."""
    try:
        answer = _answers.decode(data)
    except msgspec.DecodeError as error:
        raise Internal(f"an answer to a read cannot be decoded: {error}") from error
    if isinstance(answer, _Count):
        return answer.rows
    if isinstance(answer, _Counted):
        return TermStatistics(answer.rows, answer.length, np.frombuffer(answer.having, "<i8"))
    columns = _columns(answer.columns) if answer.columns else {}
    if isinstance(answer, _Rows):
        return columns
    ids = columns.pop(_IDS) if answer.numbers is None else np.frombuffer(answer.numbers, "<i8")
    return NodeHits(
        metric_type=answer.metric_type,
        offsets=np.frombuffer(answer.offsets, dtype="<i8"),
        ids=ids,
        scores=np.frombuffer(answer.scores, dtype="<f4"),
        fields=columns,
    )


def _stream(columns: Mapping[str, pa.Array]) -> bytes:
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _columns(data: bytes) -> dict[str, pa.Array]:
    with pa.ipc.open_stream(data) as reader:
        batch = reader.read_next_batch()
    return dict(zip(batch.schema.names, batch.columns, strict=True))
