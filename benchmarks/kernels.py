"""Micro-benchmarks of inner loops on which the server's design rests, timed on the server's own code.

*Vectors off the wire.* An insert of 1,000 rows of 768 floats arrives as one packed protobuf field, and
becomes an Arrow column through `numpy.array`. With protobuf 7 that is one copy; with 5 and 6 every float
becomes a Python object, some two hundred times slower. Hence the project requires protobuf 7, and this
shows whether it holds.

*Filters.* A filter is evaluated once per version of a segment and kept as a mask. One comparison and one
combined expression over a million rows show what a miss of that cache costs.

*Pages.* A query with a limit, such as a page of an iterator, costs what it returns, however many rows match.
Here each repetition asks with a bound of its own, as the pages of an iterator do.

*Deletes.* Which of ten thousand segments a few deletes may concern is decided at every tick that has deletes.
Random keys are in the range of each segment, and are decided by filters; the rest is visiting those that they
let through. Looking many keys up in one segment is what a large delete, and loading a segment, consist of.

*Guard.* Every call of a server with users signs in and is decided about. Here are a thousand calls of a user
with a grant on a collection, by its alias, with all that is cached: 15 microseconds each at most. The first
call with a password computes its hash, which is slow on purpose: 100 ms at most.
"""

from __future__ import annotations

import base64
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.metrics import median
from elanus.api.querynode import NodeQuery
from elanus.core.access import Role, User, first_policy, with_role, with_user
from elanus.core.ids import ALL_PARTITIONS, CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.privileges import Grant
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.expr import compile_filter
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.guard import AccessGuard
from elanus.proxy.access.passwords import hash_password
from elanus.proxy.access.permission import ObjectType
from elanus.proxy.access.sign_in import SignIn
from elanus.proxy.wire.rows import decode_rows
from elanus.proxy.wire.stubs import schema_pb2
from elanus.querynode.block import Block
from elanus.querynode.deletes import DeleteBatch
from elanus.querynode.key_ranges import KeyRanges
from elanus.querynode.keys import SortedKeys, match
from elanus.querynode.query import query
from elanus.querynode.snapshot import Snapshot, SnapshotSegment

REPEATS = 7
WIRE_ROWS, WIRE_DIMENSION = 1000, 768
WIRE_LIMIT_MS = 5.0
GUARDED_CALLS = 1000
LOGIN_LIMIT_MS = 100.0
FILTER_ROWS = 1_000_000
SEGMENTS = 10_000
DECISION_LIMIT_MS = 10.0
FILTERED_SEGMENTS, FILTERED_ROWS, FILTERED_KEYS = 1000, 2000, 10
FILTERED_LIMIT_MS = 5.0
DELETED_ROWS = 700_000
DELETED_KEYS = 100_000
DELETE_LIMIT_MS = 30.0
#: Filter and the longest that it may take, ms.
FILTERS = (
    ("price < 10", 20.0),
    ('price > 10 and color in ["red", "blue"] and name like "a%"', 100.0),
)
#: The rows of a page, the segments it comes from, and the longest that it may take, ms.
PAGE_ROWS, PAGE_SEGMENTS, PAGE_LIMIT_MS = 1000, 4, 20.0


@dataclass(frozen=True)
class Kernel:
    """One loop to time.

    Attributes:
        name: shown.
        rows: of its result.
        limit_ms: above this, something on which the design rests no longer holds.
        action: the loop; returns a column or a mask.
    """

    name: str
    rows: int
    limit_ms: float
    action: Callable[[], pa.Array | np.ndarray]


def kernels(filter_rows: int = FILTER_ROWS) -> Iterator[Kernel]:
    """Build the inputs, then yield each loop.

    Args:
        filter_rows: rows that each filter is evaluated on.
    """
    yield _wire_kernel()
    schema, columns = _schema(), _columns(filter_rows)
    for text, limit_ms in FILTERS:
        bound = compile_filter(text, schema)
        yield Kernel(
            f"filter {text}, {filter_rows:,} rows",
            filter_rows,
            limit_ms,
            lambda bound=bound: bound.evaluate(columns, filter_rows),  # type: ignore[misc]
        )
    yield _page_kernel(schema, columns, filter_rows)
    yield _decision_kernel()
    yield _filters_kernel()
    yield _delete_kernel()
    yield guard_kernel()
    yield login_kernel()


def median_ms(kernel: Kernel) -> float:
    """Median time of one run of the loop, in milliseconds, after one run unmeasured."""
    kernel.action()
    return median([_once_ms(kernel.action) for _ in range(REPEATS)])


def report() -> Iterator[str]:
    """One line per kernel: time, and whether it is within its limit."""
    for kernel in kernels():
        spent = median_ms(kernel)
        verdict = "ok" if spent <= kernel.limit_ms else f"OVER the limit of {kernel.limit_ms:g} ms"
        yield f"{spent:9.3f} ms  {kernel.name}  [{verdict}]"


def _once_ms(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return (time.perf_counter() - begun) * 1e3


def guard_kernel() -> Kernel:
    policy = first_policy()
    policy = with_role(policy, Role("clerk", (Grant("Collection", "books", "default", "Search"),)), 9)
    policy = with_user(policy, User("ada", "hash", 1, ("clerk",)), 9)
    sign_in = SignIn(lambda: policy, verify=lambda password, stored: True)
    guard = AccessGuard(lambda: policy, lambda database, name: "books")
    header = base64.b64encode(b"ada:secret").decode()

    def check() -> np.ndarray:
        users = []
        for _ in range(GUARDED_CALLS):
            caller = Caller(user=sign_in.identity_of_header(header).user)
            guard.allow(caller, "PrivilegeSearch", ObjectType.COLLECTION, "default", ("shelf",))
            users.append(caller.user)
        return np.array(users)

    return Kernel(f"sign-in and guard, {GUARDED_CALLS:,} calls", GUARDED_CALLS, 15.0, check)


def login_kernel() -> Kernel:
    policy = with_user(first_policy(), User("ada", hash_password("secret1"), 1), 9)

    def sign_in() -> np.ndarray:
        unknowing = SignIn(lambda: policy)
        return np.array([unknowing.user_of("ada", "secret1")])

    return Kernel("sign-in with a password that is not known yet", 1, LOGIN_LIMIT_MS, sign_in)


def _wire_kernel() -> Kernel:
    field = FieldSchema(FieldID(100), "vector", DataType.FLOAT_VECTOR, dim=WIRE_DIMENSION)
    floats = np.random.default_rng(0).random(WIRE_ROWS * WIRE_DIMENSION, dtype=np.float32)
    vectors = schema_pb2.VectorField(dim=WIRE_DIMENSION, float_vector=schema_pb2.FloatArray(data=floats))
    message = schema_pb2.FieldData(
        type=schema_pb2.FloatVector, field_name="vector", vectors=vectors
    ).SerializeToString()
    received = schema_pb2.FieldData.FromString(message)
    name = f"vectors off the wire, {WIRE_ROWS} × {WIRE_DIMENSION}"
    schema = CollectionSchema("vectors", (field,))

    def decode() -> pa.RecordBatch:
        return decode_rows(schema, [received], WIRE_ROWS, with_auto_key=True)

    return Kernel(name, WIRE_ROWS, WIRE_LIMIT_MS, decode)


def _page_kernel(schema: CollectionSchema, columns: dict[str, pa.Array], rows: int) -> Kernel:
    """Yield pages of the rows under 50, of segments whose keys overlap."""
    segments = []
    for number in range(PAGE_SEGMENTS):
        keys = np.random.default_rng(number).permutation(rows) * PAGE_SEGMENTS + number
        held = {"id": pa.array(keys), **columns}
        block = Block(schema, held, {}, np.arange(1, rows + 1))
        segments.append(SnapshotSegment(SegmentID(number), PartitionID(1), True, (block,)))
    now = Timestamp(rows)
    snapshot = Snapshot(CollectionID(1), schema, {}, 1, now, None, tuple(segments))
    pages = itertools.count()

    def page() -> pa.Array:
        bound = compile_filter(f"(price < 50) and id >= {next(pages)}", schema)
        request = NodeQuery(CollectionID(1), (), bound, None, ("price",), PAGE_ROWS, now)
        return query(snapshot, request)["id"]

    return Kernel(f"page of {PAGE_ROWS:,} of {PAGE_SEGMENTS} × {rows:,} rows", PAGE_ROWS, PAGE_LIMIT_MS, page)


def _decision_kernel() -> Kernel:
    ranges = KeyRanges()
    for number in range(SEGMENTS):
        ranges.add(_block(np.array([number, SEGMENTS + number])), ALL_PARTITIONS)
    batch = DeleteBatch.of(pa.array([SEGMENTS - 1]), np.array([9]), ALL_PARTITIONS)
    name = f"one delete among {SEGMENTS:,} segments: which it may concern"
    return Kernel(name, SEGMENTS, DECISION_LIMIT_MS, lambda: ranges.visits(batch).blocks)


def _filters_kernel() -> Kernel:
    """Delete keys that no segment has: reaching the few segments that seem to have one is all the work."""
    random, ranges = np.random.default_rng(3), KeyRanges()
    for _ in range(FILTERED_SEGMENTS):
        block = _block(random.integers(0, 1 << 62, FILTERED_ROWS))
        block.make_key_filter()
        ranges.add(block, ALL_PARTITIONS, block.take_key_filter())
    keys = pa.array(random.integers(0, 1 << 62, FILTERED_KEYS))
    batch = DeleteBatch.of(keys, np.full(FILTERED_KEYS, 9), ALL_PARTITIONS)
    seeming = len(ranges.visits(batch))

    def delete() -> np.ndarray:
        visits = ranges.visits(batch)
        visits.run(0, len(visits))
        return visits.blocks

    name = f"{FILTERED_KEYS} random deletes among {FILTERED_SEGMENTS:,} segments"
    return Kernel(name, seeming, FILTERED_LIMIT_MS, delete)


def _delete_kernel() -> Kernel:
    random = np.random.default_rng(2)
    keys = SortedKeys(pa.array(random.integers(0, 1 << 60, DELETED_ROWS)))
    deleted = pa.array(keys.codes[random.permutation(DELETED_ROWS)[:DELETED_KEYS]])
    batch = DeleteBatch.of(deleted, np.full(DELETED_KEYS, 9), ALL_PARTITIONS)
    name = f"{DELETED_KEYS:,} deletes among {DELETED_ROWS:,} rows"
    return Kernel(name, DELETED_KEYS, DELETE_LIMIT_MS, lambda: match(keys, batch.keys)[0])


def _block(keys: np.ndarray) -> Block:
    schema = CollectionSchema("keys", (FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),))
    return Block(schema, {"id": pa.array(keys)}, {}, np.ones(len(keys), dtype=np.int64))


def _schema() -> CollectionSchema:
    fields = (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "price", DataType.DOUBLE),
        FieldSchema(FieldID(102), "color", DataType.VARCHAR, max_length=16),
        FieldSchema(FieldID(103), "name", DataType.VARCHAR, max_length=16),
        FieldSchema(FieldID(104), "vector", DataType.FLOAT_VECTOR, dim=4),
    )
    return CollectionSchema("goods", fields)


def _columns(rows: int) -> dict[str, pa.Array]:
    random = np.random.default_rng(1)
    colors = np.array(["red", "green", "blue", "black", "white"])
    names = np.array(["apple", "pear", "avocado", "plum", "cherry", "almond"])
    return {
        "price": pa.array(random.random(rows) * 100),
        "color": pa.array(colors[random.integers(0, len(colors), rows)]).dictionary_encode(),
        "name": pa.array(names[random.integers(0, len(names), rows)]).dictionary_encode(),
    }
