"""Clients that define: they create, index, load, flush, compact and drop collections, and switch an alias.

Each client carries out its operations one after the other, each at its time or as soon as the previous one
has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

from elanus.api.rootcoord import NewCollection
from elanus.core.consistency import ConsistencyLevel
from elanus.core.errors import (
    AliasNotFound,
    CollectionAlreadyExists,
    CollectionNotFound,
    ElanusError,
    IndexNotFound,
    Internal,
    InvalidParameter,
    PartitionNotFound,
)
from elanus.core.field_changes import DESCRIPTION
from elanus.core.ids import CollectionID
from elanus.core.invariants import InvariantBroken
from elanus.core.names import DEFAULT_DATABASE
from elanus.core.time_to_live import TTL_PROPERTY
from elanus.sim.aliases import ALIAS
from elanus.sim.client_collections import (
    PARTITION,
    SHARDS,
    key_partitions_of,
    partitions_of,
    schema_of,
)
from elanus.sim.client_plans import PARTITIONED, PARTITIONS
from elanus.sim.client_verbs import ClientVerbs
from elanus.sim.judge import Judge
from elanus.sim.plan import EXPIRING, PROXIES
from elanus.sim.scenario import Operation
from elanus.sim.system import System
from elanus.sim.truth import VALUE

T = TypeVar("T")

_ATTEMPTS = 40
_CLUSTER_BYTES = 480
"""The size of a segment that compactions by the clustering key aim at: about ten rows."""
_OPERATION_TIMEOUT_S = 20.0
_INDEX = {"index_type": "HNSW", "metric_type": "L2", "M": "4", "efConstruction": "16"}


class DefiningClient:
    """A client. ``number`` identifies it in the scenario's operations.

    `operate` calls the method that is named like the operation. `elanus.sim.workload.Client` also writes and
    reads.
    """

    def __init__(self, number: int, system: System, judge: Judge, random_: random.Random) -> None:
        self.name = f"client {number}"
        self._system = system
        self._judge = judge
        self._random = random_
        self._number = 0
        """The number of the operation that is being carried out."""

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
            key_partitions_of(name),
        )
        root = self._system.roles_of_clients.root
        with contextlib.suppress(CollectionAlreadyExists):  # it is there, and has been altered
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

    async def _alter(self, name: str) -> str:
        """Change a property of a field that only proxies look at: nodes serve as before."""
        root, description = self._system.roles_of_clients.root, str(self._number)
        await self._define(
            "alter",
            lambda: root.alter_field(DEFAULT_DATABASE, name, VALUE, {DESCRIPTION: description}, ()),
        )
        return "altered"

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
