"""A root coordinator over memory, and its life and death, for this package's tests."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

import pytest
from fakes import FakeData, FakeIndexCoord, FakeLease, FakeNodes, FakeProxy, FakeQueryCoord, schema, settle
from virtual_time import VirtualClock

from elanus.api.rootcoord import NewCollection, TickReport
from elanus.core.consistency import ConsistencyLevel
from elanus.core.errors import ElanusError
from elanus.core.messages import MsgKind
from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import Timestamp
from elanus.log.memory import MemoryLog
from elanus.log.port import EntryHeader
from elanus.meta.memory import MemoryMeta
from elanus.rootcoord.coord import RootCoord
from elanus.rootcoord.tso import TimestampOracle
from elanus.rpc.parts import method_of

PCHANNELS = 2


class Proxy(FakeProxy):
    """Reports now, or what the test says; has no unfinished writes by default."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        self.unfinished: dict[str, Timestamp] = {}

    async def report_tick(self, now: Timestamp) -> TickReport:
        await super().report_tick(now)
        return self._as_of(now)

    def report(self) -> TickReport:
        return self._as_of(self.bench.oracle.allocate())

    def _as_of(self, now: Timestamp) -> TickReport:
        return TickReport(self.node_id, now, {p: Timestamp(ts - 1) for p, ts in self.unfinished.items()})


class Root:
    """A root coordinator as its callers see it: one object with the calls of all its parts.

    ``catalog``, ``definitions``, ``tidy``: what the parts share, for tests that look inside.
    """

    def __init__(self, role: RootCoord) -> None:
        self.role = role
        self.start, self.stop = role.start, role.stop
        self.catalog = role._catalog
        self.definitions = role._definitions
        self.tidy = role._completion.tidy

    def __getattr__(self, method: str) -> Any:
        return method_of(self.role, method)


class Bench:
    """``meta`` and ``log`` outlive the role; `start` makes a new instance of it, as a restart does."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.meta = MemoryMeta()
        self.log = MemoryLog()
        self.data = FakeData()
        self.index = FakeIndexCoord()
        self.query = FakeQueryCoord()
        self.proxy = Proxy(self)
        self.nodes = FakeNodes({self.proxy.node_id: self.proxy})

    async def start(self, *, users_max: int = 100, roles_max: int = 10, accept_log_until_ms: int = 0) -> Root:
        self.oracle = TimestampOracle(self.meta, self.clock, window_ms=3000, update_ms=50)
        self.lease = FakeLease()
        role = RootCoord(
            self.lease,
            self.meta,
            self.log,
            self.oracle,
            self.data,  # type: ignore[arg-type]
            self.index,  # type: ignore[arg-type]
            self.query,  # type: ignore[arg-type]
            self.nodes,
            pchannels_max=PCHANNELS,
            users_max=users_max,
            roles_max=roles_max,
            accept_log_until_ms=accept_log_until_ms,
        )
        self.root = Root(role)
        await self.root.start()
        return self.root

    async def restart(self) -> Root:
        await self.root.stop()
        return await self.start()

    async def tick(self) -> None:
        """The proxy reports, as it does in every interval."""
        await self.root.update_channel_time_tick(self.proxy.report())

    def headers(self, pchannel: str) -> list[EntryHeader]:
        return [e.header for e in self.log.read_range(pchannel, 0, self.log.end(pchannel))]

    def all_headers(self) -> list[EntryHeader]:
        return [header for pchannel in self.log.pchannels() for header in self.headers(pchannel)]

    def ddl(self, kind: MsgKind) -> list[EntryHeader]:
        return [h for h in self.all_headers() if h.kind is kind]


def new(
    name: str = "c",
    *,
    database: str = "default",
    shards: int = 2,
    of: CollectionSchema | None = None,
    properties: Mapping[str, str] | None = None,
    key_partitions: int = 0,
) -> NewCollection:
    of = of or schema(name, numbered=False)
    return NewCollection(database, of, shards, ConsistencyLevel.BOUNDED, properties or {}, key_partitions)


async def started(*collections: str) -> tuple[Bench, Root]:
    bench = Bench()
    root = await bench.start()
    for name in collections:
        await root.create_collection(new(name))
    await settle()
    return bench, root


async def refused(work: Awaitable[object], error: type[ElanusError], match: str | None = None) -> None:
    with pytest.raises(error, match=match):
        await work
