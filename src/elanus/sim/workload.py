"""The clients: their operations, and the check of the answers they receive.

Each client carries out its operations one after the other, each at its time or as soon as the previous one
has ended. A write that failed may or may not have taken effect; only acknowledged writes are relied on. Every
answer is passed to the judge.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from elanus.api.rootcoord import NewCollection
from elanus.core.consistency import WIRE_BOUNDED, WIRE_EVENTUALLY, ConsistencyLevel, ReadConsistency
from elanus.core.errors import (
    AliasNotFound,
    CollectionNotFound,
    ElanusError,
    IndexNotFound,
    Internal,
    InvalidParameter,
    PartitionNotFound,
)
from elanus.core.ids import CollectionID, FieldID
from elanus.core.invariants import InvariantBroken
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.time_to_live import TTL_PROPERTY
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.proxy.api import DEFAULT_DATABASE, DEFAULT_PARTITION, Query, QueryResult, Search, SearchResult
from elanus.proxy.role.cache import CachedCollection
from elanus.sim.aliases import ALIAS
from elanus.sim.client_plans import CLONED, CLONED_SHARDS, PARTITIONED, PARTITIONED_SHARDS, PARTITIONS
from elanus.sim.client_verbs import ClientVerbs
from elanus.sim.judge import Acknowledged, Answer, Judge
from elanus.sim.plan import AUTO_IDS, AUTO_IDS_SHARDS, COLLECTIONS, EXPIRING, PROXIES
from elanus.sim.scenario import Operation
from elanus.sim.system import System
from elanus.sim.truth import KEY, VALUE

T = TypeVar("T")

PARTITION = "p1"
SHARDS = {**COLLECTIONS, AUTO_IDS: AUTO_IDS_SHARDS, PARTITIONED: PARTITIONED_SHARDS, CLONED: CLONED_SHARDS}
KEYS = 400
_ROWS_MAX = 12
_ATTEMPTS = 40
_CLUSTER_BYTES = 480
"""The size of a segment that compactions by the clustering key aim at: about ten rows."""
_ALL = 2_000
_OPERATION_TIMEOUT_S = 20.0
_LEVELS = (
    ConsistencyLevel.STRONG,
    ConsistencyLevel.SESSION,
    ConsistencyLevel.BOUNDED,
    ConsistencyLevel.EVENTUALLY,
)
_INDEX = {"index_type": "HNSW", "metric_type": "L2", "M": "4", "efConstruction": "16"}
_REMEMBERED = 20
_EVERYWHERE = 1_000_000
"""Values from here on belong to rows that are inserted into each partition."""
_MORE = {"beta": "weight"}
"""A column that only one of the collections has, so that rows of one do not fit the other."""


def partitions_of(name: str) -> tuple[str, ...]:
    """The partitions of a collection that clients create."""
    return PARTITIONS if name == PARTITIONED else (PARTITION,)


@cache
def schema_of(name: str) -> CollectionSchema:
    unnumbered = FieldID(0)
    fields = [
        FieldSchema(unnumbered, KEY, DataType.INT64, is_primary=True, auto_id=name == AUTO_IDS),
        FieldSchema(unnumbered, VALUE, DataType.INT64, is_clustering_key=True),
        FieldSchema(unnumbered, "vector", DataType.FLOAT_VECTOR, dim=2),
    ]
    if name in _MORE:
        fields.append(FieldSchema(unnumbered, _MORE[name], DataType.INT64))
    return CollectionSchema(name, tuple(fields))


class Client:
    """A client. ``number`` identifies it in the scenario's operations."""

    def __init__(self, number: int, system: System, judge: Judge, random_: random.Random) -> None:
        self.name = f"client {number}"
        self._system = system
        self._judge = judge
        self._random = random_
        self._number = 0
        self._session: dict[str, Timestamp] = {}
        self._answers: dict[str, deque[Answer]] = {}

    async def run(self, operations: Iterable[Operation], seed: int) -> None:
        loop = asyncio.get_running_loop()
        for operation in operations:
            await asyncio.sleep(operation.at_s - loop.time())
            self._random, self._number = random.Random(f"{seed}/{operation.number}"), operation.number
            self._system.trace.count(operation.kind)
            await self.operate(operation.kind, operation.collection)

    async def operate(self, kind: str, collection: str, *how: object) -> bool:
        """Carry out one operation; whether it succeeded. ``how``: its arguments. Raises `InvariantBroken`."""
        what = f"{self.name}: {kind} {collection}"
        self._system.trace.note(f"{what} …")
        try:
            async with asyncio.timeout(_OPERATION_TIMEOUT_S):
                outcome = await getattr(self, f"_{kind}")(collection, *how)
        except (Internal, AssertionError) as error:
            raise InvariantBroken("LIVE2", f"{what}: {error}") from error
        except (ElanusError, TimeoutError) as error:
            self._system.trace.note(f"{what}: {type(error).__name__} {error}")
            return False
        self._system.trace.note(f"{what}: {outcome}")
        return True

    # writes

    async def _insert(self, name: str) -> str:
        return await self._write(name, replaces=False)

    async def _upsert(self, name: str) -> str:
        return await self._write(name, replaces=True)

    async def _write(self, name: str, *, replaces: bool) -> str:
        keys = self._random.sample(range(KEYS), self._random.randint(1, _ROWS_MAX))
        values = [16 * self._number + place for place in range(len(keys))]
        partition = self._partition(name)
        begun = self._judge.aliases.begin()
        self._system.trace.note(f"{self.name}: writes {keys} with {values} into {partition}", keys)
        cached, ts = await self._system.ask(
            self._proxy(),
            "write",
            lambda verbs: verbs.write(
                name, partition, lambda schema: rows_of(keys, values, schema), replaces=replaces
            ),
        )
        self._check_name(name, begun, cached, tuple(keys))
        self._acknowledge(name, cached, ts, keys, values)
        return f"acknowledged at {ts}"

    async def _insert_everywhere(self, name: str) -> str:
        """Insert a row into each partition."""
        for place, partition in enumerate(partitions_of(name)):
            keys, values = [self._random.randrange(KEYS)], [_EVERYWHERE + 64 * self._number + place]
            self._system.trace.note(f"{self.name}: writes {keys} with {values} into {partition}", keys)
            await self._write_rows(name, partition, keys, values)
        return f"a row in each of {len(partitions_of(name))} partitions"

    async def _write_rows(self, name: str, partition: str, keys: list[int], values: list[int]) -> None:
        cached, ts = await self._system.ask(
            self._proxy(),
            "write",
            lambda verbs: verbs.write(
                name, partition, lambda schema: rows_of(keys, values, schema), replaces=False
            ),
        )
        self._acknowledge(name, cached, ts, keys, values)

    def _partition(self, name: str) -> str:
        """Draw the partition that a write goes to."""
        if name == PARTITIONED:
            return self._random.choice(PARTITIONS)
        return PARTITION if self._random.random() < 0.25 else DEFAULT_PARTITION

    async def _write_misfit(self, name: str) -> str:
        """Write rows of the other collection. No reader may fail because of them."""
        keys = self._random.sample(range(KEYS), self._random.randint(1, _ROWS_MAX))
        (other,) = COLLECTIONS.keys() - {name}
        rows = rows_of(keys, keys, schema_of(other))
        _, ts = await self._system.ask(self._proxy(), "write", lambda verbs: verbs.write_misfit(name, rows))
        return f"rows of {other} at {ts}"

    async def _delete(self, name: str) -> str:
        keys = self._random.sample(range(KEYS), self._random.randint(1, 2 * _ROWS_MAX))
        return await self._delete_by(name, f"{KEY} in {sorted(keys)}")

    async def _delete_where(self, name: str) -> str:
        return await self._delete_by(name, f"{VALUE} % 37 == {self._random.randrange(37)}")

    async def _delete_by(self, name: str, text: str) -> str:
        begun = self._judge.aliases.begin()
        cached, ts, keys = await self._system.ask(
            self._proxy(), "delete", lambda verbs: verbs.delete(name, text)
        )
        if keys:
            self._check_name(name, begun, cached, tuple(keys))
            self._acknowledge(name, cached, ts, keys, [])
        return f"deleted at {ts}: {keys}"

    def _check_name(self, name: str, begun: int, cached: CachedCollection, keys: tuple[int, ...]) -> None:
        if name == ALIAS:
            self._judge.aliases.check(begun, cached.view.name, keys)

    def _acknowledge(
        self,
        name: str,
        cached: CachedCollection,
        ts: Timestamp,
        keys: list[int],
        values: list[int],
        replaced: Sequence[int] = (),
    ) -> None:
        self._judge.acknowledged(
            Acknowledged(
                cached.collection_id, cached.view.vchannels, ts, tuple(keys), tuple(values), tuple(replaced)
            )
        )
        self._session[name] = ts
        if self._system.log.full_pchannels():
            self._system.trace.count("writes next to a full pchannel")

    # reads

    async def _count(self, name: str, level: ConsistencyLevel | None = None) -> str:
        cached, result = await self._read(name, ("count(*)",), "", level)
        count = result.fields["count(*)"][0].as_py()
        self._judge.check_count(cached, result.ts, count)
        return f"{count} at {result.ts}"

    async def _query(self, name: str, level: ConsistencyLevel | None = None) -> str:
        return await self._query_all(name, None, level)

    async def _query_where(self, name: str, level: ConsistencyLevel | None = None) -> str:
        return await self._query_all(name, self._random.randrange(1, 16 * self._number + 2), level)

    async def _query_all(self, name: str, bound: int | None, level: ConsistencyLevel | None) -> str:
        text = f"{KEY} >= 0" if bound is None else f"{VALUE} < {bound}"
        cached, result = await self._read(name, (KEY, VALUE), text, level)
        answer = Answer(cached.collection_id, result.ts, bound, _pairs(result))
        keys, values = [key for key, _ in answer.rows], [value for _, value in answer.rows]
        self._judge.check_rows(cached, result.ts, keys, values, bound)
        if result.ts > WIRE_BOUNDED:  # otherwise nothing is served yet, and ts is a request, not a moment
            self._answers.setdefault(name, deque(maxlen=_REMEMBERED)).append(answer)
        return f"{len(answer.rows)} rows{'' if bound is None else f' below {bound}'} at {result.ts}"

    async def _query_again(self, name: str) -> str:
        """Repeat an earlier read at its timestamp."""
        if name not in self._answers:
            return "nothing was read yet"
        before = self._random.choice(self._answers[name])
        text = f"{KEY} >= 0" if before.bound is None else f"{VALUE} < {before.bound}"
        pinned = ReadConsistency(None, before.ts, pinned=True)
        request_of = partial(
            Query,
            partitions=(),
            filter=text,
            output_fields=(KEY, VALUE),
            limit=None,
            offset=0,
            consistency=pinned,
        )
        cached, result = await self._system.ask(
            self._proxy(), "query", lambda verbs: verbs.query(name, request_of)
        )
        if cached.collection_id != before.collection_id:
            return "another collection has its name now"
        self._system.trace.count("reads repeated")
        self._judge.check_repeated(before, result.ts, _pairs(result))
        return f"again {len(before.rows)} rows at {before.ts}"

    async def _search(self, name: str, level: ConsistencyLevel | None = None) -> str:
        level, consistency = self._consistency(name, level)
        since = self._judge.since(self._now())
        session = self._session.get(name, NO_TIMESTAMP)
        query = np.array([[float(self._random.randrange(1000)), 0.0]], dtype=np.float32)

        def request_of(cached: CachedCollection) -> Search:
            return Search(cached, (), "", query, _ALL, 0, "", "", {}, (VALUE,), -1, consistency)

        async def search(verbs: ClientVerbs) -> tuple[CachedCollection, SearchResult, Timestamp]:
            cached, result = await verbs.search(name, request_of)
            return cached, result, self._judge.ticked(cached)

        with self._timed(level):
            cached, result, ticked = await self._system.ask(self._proxy(), "search", search)
        self._judge.check_moment(cached, result.ts, level, session, since, ticked)
        self._system.trace.count("reads judged")
        self._judge.check_rows(cached, result.ts, result.ids.tolist(), None)
        return f"{len(result.ids)} hits at {result.ts}"

    async def _read(
        self, name: str, fields: tuple[str, ...], text: str, level: ConsistencyLevel | None
    ) -> tuple[CachedCollection, QueryResult]:
        level, consistency = self._consistency(name, level)
        since = self._judge.since(self._now())
        session = self._session.get(name, NO_TIMESTAMP)

        def request_of(cached: CachedCollection) -> Query:
            return Query(cached, (), text, fields, None, 0, consistency)

        async def query(verbs: ClientVerbs) -> tuple[CachedCollection, QueryResult, Timestamp]:
            cached, result = await verbs.query(name, request_of)
            return cached, result, self._judge.ticked(cached)

        with self._timed(level):
            cached, result, ticked = await self._system.ask(self._proxy(), "query", query)
        self._judge.check_moment(cached, result.ts, level, session, since, ticked)
        self._system.check_nodes()
        self._system.trace.count("reads judged")
        return cached, result

    @contextmanager
    def _timed(self, level: ConsistencyLevel) -> Iterator[None]:
        """Have the judge look at how long a read took, also if it failed."""
        now_s = asyncio.get_running_loop().time
        began_s = now_s()
        try:
            yield
        except ElanusError:
            self._judge.check_wait(level, now_s() - began_s)
            raise
        self._judge.check_wait(level, now_s() - began_s)

    def _consistency(
        self, name: str, level: ConsistencyLevel | None
    ) -> tuple[ConsistencyLevel, ReadConsistency]:
        level = self._random.choice(_LEVELS) if level is None else level
        return level, ReadConsistency(level, self._session.get(name, WIRE_EVENTUALLY))

    def _now(self) -> Timestamp:
        """The oracle's current timestamp; while it is down, the lowest one, which demands nothing."""
        try:
            return self._system.stamp()
        except ElanusError:
            return NO_TIMESTAMP

    # definitions

    async def set_up(self, name: str) -> None:
        """Create, index and load a collection, retrying failed steps. A clone exists already."""
        for _ in range(_ATTEMPTS):
            for step in ("create", "index", "load")[name not in SHARDS :]:
                if not await self.operate(step, name):
                    await asyncio.sleep(0.3)
                    break
            else:
                return

    async def _create(self, name: str) -> str:
        new = NewCollection(
            DEFAULT_DATABASE,
            schema_of(name),
            SHARDS[name],
            ConsistencyLevel.BOUNDED,
            {TTL_PROPERTY: str(self._system.ttl_s)} if name == EXPIRING and self._system.ttl_s else {},
        )
        root = self._system.roles_of_clients.root
        await self._define("create", lambda: root.create_collection(new))
        for partition in partitions_of(name):
            await self._define("partition", partial(root.create_partition, DEFAULT_DATABASE, name, partition))
        return "created"

    async def _index(self, name: str) -> str:
        async def index(verbs: ClientVerbs) -> None:
            cached = await verbs.collection(name)
            field = cached.view.schema.field("vector")
            create = self._system.roles_of_clients.index.create_index
            await verbs.define("index", lambda: create(cached.collection_id, field, "vector", _INDEX))

        await self._system.ask(self._proxy(), "index", index)
        return "indexed"

    async def _load(self, name: str) -> str:
        load_collection = self._system.roles_of_clients.query.load
        replicas = self._system.reading.replicas

        async def load(verbs: ClientVerbs) -> None:
            cached = await verbs.collection(name)
            if not cached.indexes:
                raise IndexNotFound(f"collection {name} has no index")
            await verbs.define("load", lambda: load_collection(cached.collection_id, (), replicas))

        await self._system.ask(self._proxy(), "load", load)
        return "loads"

    async def _reload(self, name: str) -> str:
        release = self._system.roles_of_clients.query.release
        await self._of_collection("release", name, lambda collection_id: release(collection_id, ()))
        await self.set_up(name)
        return "loaded again"

    async def _flush(self, name: str) -> str:
        flush = self._system.roles_of_clients.data.flush
        return str(await self._of_collection("flush", name, flush))

    async def _compact(self, name: str) -> str:
        compact = self._system.roles_of_clients.data.compact
        return f"trigger {await self._of_collection('compact', name, compact)}"

    async def _cluster(self, name: str) -> str:
        """Compact by the clustering key, into many small segments."""
        compact = self._system.roles_of_clients.data.compact
        made = self._of_collection("compact", name, lambda of: compact(of, _CLUSTER_BYTES, True))
        return f"trigger {await made}"

    async def _renew_partition(self, name: str) -> str:
        """Drop a partition and create it again.

        The drop counts as done when it is acknowledged, or when the partition is not found.
        """
        cached = await self._system.ask(self._proxy(), "look", lambda verbs: verbs.collection(name))
        root = self._system.roles_of_clients.root
        partition = self._random.choice(PARTITIONS) if name == PARTITIONED else PARTITION
        if partition in cached.partitions:
            self._judge.partition_leaves(cached.partitions[partition])
        for _ in range(_ATTEMPTS):
            try:
                await self._define("drop", lambda: root.drop_partition(DEFAULT_DATABASE, name, partition))
            except PartitionNotFound:
                pass
            except ElanusError:
                await asyncio.sleep(0.3)
                continue
            if partition in cached.partitions:
                self._judge.partition_dropped(cached.collection_id, cached.partitions[partition])
            break
        await self._define("partition", lambda: root.create_partition(DEFAULT_DATABASE, name, partition))
        return f"recreated in {cached.collection_id}"

    async def _renew_collection(self, name: str) -> str:
        """Drop a collection and create it again.

        The drop counts as done when it is acknowledged, or when the collection is not found.
        """
        cached = await self._system.ask(self._proxy(), "look", lambda verbs: verbs.collection(name))
        root = self._system.roles_of_clients.root

        def drop() -> Awaitable[None]:
            return root.drop_collection(DEFAULT_DATABASE, name, cached.collection_id)

        for _ in range(_ATTEMPTS):
            try:
                await self._define("drop", drop)
            except CollectionNotFound:
                pass
            except InvalidParameter:
                await self._drop_alias()  # a collection with an alias cannot be dropped
                continue
            except ElanusError:
                await asyncio.sleep(0.3)
                continue
            self._judge.dropped(cached.collection_id)
            break
        await self.set_up(name)
        return f"dropped {cached.collection_id}"

    async def _switch_alias(self, name: str) -> str:
        """Make the alias refer to this collection."""
        root = self._system.roles_of_clients.root
        async with self._judge.aliases.turn(name):
            try:
                await self._define("alias", lambda: root.alter_alias(DEFAULT_DATABASE, name, ALIAS))
            except AliasNotFound:
                await self._define("alias", lambda: root.create_alias(DEFAULT_DATABASE, name, ALIAS))
        self._system.trace.count("alias switched")
        return f"{ALIAS} means {name}"

    async def _drop_alias(self) -> None:
        root = self._system.roles_of_clients.root
        async with self._judge.aliases.turn(""):
            await self._define("alias", lambda: root.drop_alias(DEFAULT_DATABASE, ALIAS))

    async def _of_collection(self, what: str, name: str, work: Callable[[CollectionID], Awaitable[T]]) -> T:
        async def run(verbs: ClientVerbs) -> T:
            cached = await verbs.collection(name)
            return await verbs.define(what, lambda: work(cached.collection_id))

        return await self._system.ask(self._proxy(), what, run)

    async def _define(self, what: str, work: Callable[[], Awaitable[T]]) -> T:
        return await self._system.ask(self._proxy(), what, lambda verbs: verbs.define(what, work))

    def _proxy(self) -> str:
        return self._random.choice(PROXIES)


def _pairs(result: QueryResult) -> tuple[tuple[int, int], ...]:
    """The keys with their values."""
    keys, values = (result.fields[column].to_pylist() for column in (KEY, VALUE))
    return tuple(zip(keys, values, strict=True))


def rows_of(keys: list[int], values: list[int], of: CollectionSchema) -> pa.RecordBatch:
    """Rows of a collection of `schema_of`."""
    vectors = np.array([[value, key] for key, value in zip(keys, values, strict=True)], dtype=np.float32)
    schema = of.arrow_schema
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=schema.field("vector").type)
    known = {KEY: pa.array(keys, pa.int64()), VALUE: pa.array(values, pa.int64()), "vector": flat}
    columns = [known.get(name, known[VALUE]) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
