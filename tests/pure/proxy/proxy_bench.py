"""A proxy role over a log in memory and peers that play along, for this package's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from fakes import (
    DEFAULT,
    OTHER,
    FakeData,
    FakeIndexCoord,
    FakeLease,
    FakeQueryCoord,
    FakeRoot,
    collection,
    inline,
)

from elanus.api.querynode import NodeQuery
from elanus.core.catalog import Collection
from elanus.core.errors import ElanusError
from elanus.core.ids import NodeID
from elanus.core.timestamps import MAX_TIMESTAMP, Timestamp
from elanus.log.codec import decode
from elanus.log.memory import MemoryLog
from elanus.proxy.fanout.deadline import Patience
from elanus.proxy.role.cache import CachedCollection, collection_view
from elanus.proxy.role.measures import NoMeasures
from elanus.proxy.role.proxy import Coordinators, Proxy, ProxyPolicy
from elanus.proxy.role.read_path import ReadPolicy
from elanus.proxy.role.stamps import OwnStamps
from elanus.proxy.verbs.pressure import GrowingData, Pressure, PressureLimits
from elanus.proxy.verbs.proxy_verbs import ProxyVerbs

NODE = NodeID(1)
TWO_PARTITIONS = collection(partitions=(DEFAULT, OTHER), aliases=("a",))


def resolved(of: Collection) -> CachedCollection:
    """A collection of the database ``default``, without indexes, as a name is resolved."""
    partitions = {p.name: p.partition_id for p in of.partitions}
    return CachedCollection(collection_view("default", of), partitions, ())


POLICY = ProxyPolicy(
    tick_interval_ms=200,
    tasks_max=10,
    reads=ReadPolicy(5000, 3600.0, 5.0),
    call_timeout_s=5.0,
    allocation_rows_min=1000,
)


class ServesAll:
    """Query nodes that are always up to date. ``rows`` is what a query finds."""

    def __init__(self) -> None:
        self.asked: list[NodeQuery] = []
        self.rows: dict[str, pa.Array] = {"pk": pa.array([], pa.int64())}

    async def start(self) -> None: ...
    async def stop(self) -> None: ...

    def forget(self, _collection_id: int) -> None:
        """Nothing is known beyond what the test says."""

    def service_time(self, _collection_id: int, _patience: Patience) -> Timestamp:
        return MAX_TIMESTAMP

    def wait_service_time(self, _collection_id: int, _ts: Timestamp, _patience: Patience) -> None: ...

    def query(self, request: NodeQuery, patience: Patience) -> dict[str, pa.Array]:
        self.asked.append(request)
        return self.rows


class Bench:
    """Made on the event loop that the proxy is to live on. ``verbs`` is for other threads."""

    def __init__(self, *collections: Collection, log: MemoryLog | None = None) -> None:
        self.root = FakeRoot(*collections)
        self.data = FakeData()
        self.index = FakeIndexCoord()
        self.query = FakeQueryCoord()
        self.nodes = ServesAll()
        self.log = log or MemoryLog()
        self.growing_bytes = 0
        coordinators: Any = Coordinators(self.root, self.data, self.index, self.query)  # type: ignore[arg-type]
        self.lease = FakeLease(NODE)
        self.proxy = Proxy(
            self.lease,
            coordinators,
            self.nodes,
            self.log,
            OwnStamps(self.root.stamp),
            inline,
            POLICY,
            NoMeasures(),  # type: ignore[arg-type]
        )
        self.verbs = ProxyVerbs(
            lambda: self.proxy,
            Pressure(
                PressureLimits(1 << 40, 1 << 41, 0, 1),
                lambda: GrowingData(self.growing_bytes),
                lambda: 1 << 50,
                lambda _: None,
                NoMeasures(),
            ),
            lambda: (),
        )

    def messages(self) -> list[Any]:
        return [
            decode(entry)
            for pchannel in self.log.pchannels()
            for entry in self.log.read_range(pchannel, 0, self.log.end(pchannel))
        ]


def asked(work: Callable[[Bench], Any], known: Collection = TWO_PARTITIONS) -> Bench:
    """Run ``work`` in a thread next to the event loop of a proxy that knows one collection, ``c``."""

    async def run() -> Bench:
        bench = Bench(known)
        await asyncio.to_thread(work, bench)
        return bench

    return asyncio.run(run())


def refused(
    work: Callable[[Bench], Any],
    error: type[ElanusError],
    match: str | None = None,
    known: Collection = TWO_PARTITIONS,
) -> Bench:
    def expect(bench: Bench) -> None:
        with pytest.raises(error, match=match):
            work(bench)

    return asked(expect, known)
