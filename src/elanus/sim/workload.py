"""The clients: what they do, and what they make of the answers.

Each client carries out its operations one after the other, each at its time or as soon as the one before
has ended. A write that failed may have had its effect or not; only what was acknowledged is counted on.
Every answer goes to the judge.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from typing import TypeVar

import numpy as np
import pyarrow as pa

from elanus.core.consistency import WIRE_BOUNDED, WIRE_EVENTUALLY, ConsistencyLevel, ReadConsistency
from elanus.core.errors import CollectionNotFound, ElanusError, IndexNotFound, Internal, PartitionNotFound
from elanus.core.ids import CollectionID, FieldID
from elanus.core.invariants import InvariantBroken
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.proxy.api import DEFAULT_DATABASE, DEFAULT_PARTITION, Query, QueryResult, Search, SearchResult
from elanus.proxy.cache import CachedCollection
from elanus.rpc.rootcoord import NewCollection
from elanus.sim.judge import Acknowledged, Answer, Judge
from elanus.sim.plan import COLLECTIONS, PROXIES
from elanus.sim.scenario import Operation
from elanus.sim.system import System
from elanus.sim.truth import KEY, VALUE
from elanus.sim.verbs import Verbs

T = TypeVar("T")

PARTITION = "p1"
KEYS = 400
_ROWS_MAX = 12
_ATTEMPTS = 40
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


@cache
def schema_of(name: str) -> CollectionSchema:
    unnumbered = FieldID(0)
    return CollectionSchema(
        name,
        (
            FieldSchema(unnumbered, KEY, DataType.INT64, is_primary=True),
            FieldSchema(unnumbered, VALUE, DataType.INT64),
            FieldSchema(unnumbered, "vector", DataType.FLOAT_VECTOR, dim=2),
        ),
    )


class Client:
    """``number`` is what its operations name it by."""

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
        """One operation; whether it succeeded. ``how``: its arguments. Raises `InvariantBroken`."""
        what = f"{self.name}: {kind} {collection}"
        self._system.trace.note(f"{what} …")
        try:
            async with asyncio.timeout(_OPERATION_TIMEOUT_S):
                told = await getattr(self, f"_{kind}")(collection, *how)
        except (Internal, AssertionError) as error:
            raise InvariantBroken("LIVE2", f"{what}: {error}") from error
        except (ElanusError, TimeoutError) as error:
            self._system.trace.note(f"{what}: {type(error).__name__} {error}")
            return False
        self._system.trace.note(f"{what}: {told}")
        return True

    # writes

    async def _insert(self, name: str) -> str:
        return await self._write(name, replaces=False)

    async def _upsert(self, name: str) -> str:
        return await self._write(name, replaces=True)

    async def _write(self, name: str, *, replaces: bool) -> str:
        keys = self._random.sample(range(KEYS), self._random.randint(1, _ROWS_MAX))
        values = [16 * self._number + place for place in range(len(keys))]
        partition = PARTITION if self._random.random() < 0.25 else DEFAULT_PARTITION
        rows = rows_of(keys, values)
        self._system.trace.note(f"{self.name}: writes {keys} with {values} into {partition}", keys)
        cached, ts = await self._system.ask(
            self._proxy(), "write", lambda verbs: verbs.write(name, partition, rows, replaces=replaces)
        )
        self._acknowledge(name, cached, ts, keys, values)
        return f"acknowledged at {ts}"

    async def _delete(self, name: str) -> str:
        keys = self._random.sample(range(KEYS), self._random.randint(1, 2 * _ROWS_MAX))
        return await self._delete_by(name, f"{KEY} in {sorted(keys)}")

    async def _delete_where(self, name: str) -> str:
        return await self._delete_by(name, f"{VALUE} % 37 == {self._random.randrange(37)}")

    async def _delete_by(self, name: str, text: str) -> str:
        cached, ts, keys = await self._system.ask(
            self._proxy(), "delete", lambda verbs: verbs.delete(name, text)
        )
        if keys:
            self._acknowledge(name, cached, ts, keys, [])
        return f"deleted at {ts}: {keys}"

    def _acknowledge(
        self, name: str, cached: CachedCollection, ts: Timestamp, keys: list[int], values: list[int]
    ) -> None:
        self._judge.acknowledged(
            Acknowledged(cached.collection_id, cached.view.vchannels, ts, tuple(keys), tuple(values))
        )
        self._session[name] = ts

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
        if result.ts > WIRE_BOUNDED:  # else nothing is served yet, and the number is a wish, not a moment
            self._answers.setdefault(name, deque(maxlen=_REMEMBERED)).append(answer)
        return f"{len(answer.rows)} rows{'' if bound is None else f' below {bound}'} at {result.ts}"

    async def _query_again(self, name: str) -> str:
        """Read once more as of a moment that was read before."""
        if name not in self._answers:
            return "nothing was read yet"
        before = self._random.choice(self._answers[name])
        text = f"{KEY} >= 0" if before.bound is None else f"{VALUE} < {before.bound}"
        pinned = ReadConsistency(None, before.ts, pinned=True)
        request = Query(DEFAULT_DATABASE, name, (), text, (KEY, VALUE), None, 0, pinned)
        cached, result = await self._system.ask(self._proxy(), "query", lambda verbs: verbs.query(request))
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
        request = Search(
            DEFAULT_DATABASE, name, (), "", query, _ALL, 0, "", "", {}, (VALUE,), -1, consistency
        )

        async def search(verbs: Verbs) -> tuple[CachedCollection, SearchResult, Timestamp]:
            cached, result = await verbs.search(request)
            return cached, result, self._judge.ticked(cached)

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
        request = Query(DEFAULT_DATABASE, name, (), text, fields, None, 0, consistency)

        async def query(verbs: Verbs) -> tuple[CachedCollection, QueryResult, Timestamp]:
            cached, result = await verbs.query(request)
            return cached, result, self._judge.ticked(cached)

        cached, result, ticked = await self._system.ask(self._proxy(), "query", query)
        self._judge.check_moment(cached, result.ts, level, session, since, ticked)
        self._system.check_nodes()
        self._system.trace.count("reads judged")
        return cached, result

    def _consistency(
        self, name: str, level: ConsistencyLevel | None
    ) -> tuple[ConsistencyLevel, ReadConsistency]:
        level = self._random.choice(_LEVELS) if level is None else level
        return level, ReadConsistency(level, self._session.get(name, WIRE_EVENTUALLY))

    def _now(self) -> Timestamp:
        """As the oracle has it; with the oracle down, a moment long ago, which demands nothing."""
        try:
            return self._system.stamp()
        except ElanusError:
            return NO_TIMESTAMP

    # definitions

    async def set_up(self, name: str) -> None:
        """Create, index and load a collection, as often as it takes."""
        for _ in range(_ATTEMPTS):
            for step in ("create", "index", "load"):
                if not await self.operate(step, name):
                    await asyncio.sleep(0.3)
                    break
            else:
                return

    async def _create(self, name: str) -> str:
        new = NewCollection(
            DEFAULT_DATABASE, schema_of(name), COLLECTIONS[name], ConsistencyLevel.BOUNDED, {}
        )
        root = self._system.roles_of_clients.root
        await self._define("create", lambda: root.create_collection(new))
        await self._define("partition", lambda: root.create_partition(DEFAULT_DATABASE, name, PARTITION))
        return "created"

    async def _index(self, name: str) -> str:
        async def index(verbs: Verbs) -> None:
            cached = await verbs.collection(name)
            field = cached.view.schema.field("vector")
            create = self._system.roles_of_clients.index.create_index
            await verbs.define("index", lambda: create(cached.collection_id, field, "vector", _INDEX))

        await self._system.ask(self._proxy(), "index", index)
        return "indexed"

    async def _load(self, name: str) -> str:
        load_collection = self._system.roles_of_clients.query.load
        replicas = self._system.reading.replicas

        async def load(verbs: Verbs) -> None:
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

    async def _renew_partition(self, name: str) -> str:
        """Drop a partition and make it anew. Who hears that it is not there has the same certainty."""
        cached = await self._system.ask(self._proxy(), "look", lambda verbs: verbs.collection(name))
        root = self._system.roles_of_clients.root
        if PARTITION in cached.partitions:
            self._judge.partition_leaves(cached.partitions[PARTITION])
        for _ in range(_ATTEMPTS):
            try:
                await self._define("drop", lambda: root.drop_partition(DEFAULT_DATABASE, name, PARTITION))
            except PartitionNotFound:
                pass
            except ElanusError:
                await asyncio.sleep(0.3)
                continue
            if PARTITION in cached.partitions:
                self._judge.partition_dropped(cached.collection_id, cached.partitions[PARTITION])
            break
        await self._define("partition", lambda: root.create_partition(DEFAULT_DATABASE, name, PARTITION))
        return f"made anew in {cached.collection_id}"

    async def _renew_collection(self, name: str) -> str:
        """Drop a collection and make it anew. It is dropped when that was said, or when it is not found."""
        cached = await self._system.ask(self._proxy(), "look", lambda verbs: verbs.collection(name))
        root = self._system.roles_of_clients.root

        def drop() -> Awaitable[None]:
            return root.drop_collection(DEFAULT_DATABASE, name, cached.collection_id)

        for _ in range(_ATTEMPTS):
            try:
                await self._define("drop", drop)
            except CollectionNotFound:
                pass
            except ElanusError:
                await asyncio.sleep(0.3)
                continue
            self._judge.dropped(cached.collection_id)
            break
        await self.set_up(name)
        return f"dropped {cached.collection_id}"

    async def _of_collection(self, what: str, name: str, work: Callable[[CollectionID], Awaitable[T]]) -> T:
        async def run(verbs: Verbs) -> T:
            cached = await verbs.collection(name)
            return await verbs.define(what, lambda: work(cached.collection_id))

        return await self._system.ask(self._proxy(), what, run)

    async def _define(self, what: str, work: Callable[[], Awaitable[T]]) -> T:
        return await self._system.ask(self._proxy(), what, lambda verbs: verbs.define(what, work))

    def _proxy(self) -> str:
        return self._random.choice(PROXIES)


def _pairs(result: QueryResult) -> tuple[tuple[int, int], ...]:
    """Keys with their values."""
    keys, values = (result.fields[column].to_pylist() for column in (KEY, VALUE))
    return tuple(zip(keys, values, strict=True))


def rows_of(keys: list[int], values: list[int]) -> pa.RecordBatch:
    """Rows of a collection of `schema_of`."""
    vectors = np.array([[value, key] for key, value in zip(keys, values, strict=True)], dtype=np.float32)
    schema = schema_of("").arrow_schema
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=schema.field("vector").type)
    columns = [pa.array(keys, pa.int64()), pa.array(values, pa.int64()), flat]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
