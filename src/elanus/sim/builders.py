"""How each role of a run is made: its own code, on the simulated network, log, stores and channels.

`elanus.server.builders` does it for real.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from elanus.core.ids import NodeID
from elanus.core.invariants import InvariantBroken
from elanus.core.timestamps import Timestamp
from elanus.datacoord.collecting import GcPorts
from elanus.datacoord.coord import DataCoord
from elanus.datacoord.dead_rows import DeadRows
from elanus.datacoord.imports import ImportPolicy, ImportSetup
from elanus.datacoord.ledger import JobLedger, LedgerPolicy
from elanus.datacoord.manifests import Manifests
from elanus.datacoord.state import DataState
from elanus.indexcoord.coord import IndexCoord, IndexPolicy
from elanus.indexcoord.state import IndexState
from elanus.meta.session import Session
from elanus.proxy.fanout import FanOut
from elanus.proxy.measures import NoMeasures
from elanus.proxy.proxy import Coordinators, Proxy
from elanus.proxy.stamps import OwnStamps
from elanus.querycoord.coord import QueryCoord
from elanus.querycoord.fleet import ChannelFleet, OneNode
from elanus.querycoord.loader import Peers
from elanus.querycoord.state import LoadState
from elanus.querynode.node import Offload, QueryNode
from elanus.rootcoord.coord import RootCoord
from elanus.rootcoord.tso import TimestampOracle
from elanus.rpc.datacoord import DataCoordApi
from elanus.rpc.indexcoord import IndexCoordApi
from elanus.rpc.indexnode import IndexNodeApi
from elanus.rpc.pipeline import PipelineApi
from elanus.rpc.querychannel import ReadPayloads
from elanus.rpc.querycoord import QueryCoordApi
from elanus.rpc.querynode import QueryNodeApi
from elanus.rpc.rootcoord import RootCoordApi
from elanus.server.import_served import ServedImports
from elanus.sim.chance import Chance
from elanus.sim.channels import SimChannels
from elanus.sim.directories import Directories
from elanus.sim.life import Life
from elanus.sim.log import SimLog
from elanus.sim.loop import VirtualClock
from elanus.sim.net import Handle, client
from elanus.sim.pipeline import Jobs, PipelineProcess, Sweeps
from elanus.sim.plan import PIPELINES, PROXIES, QUERY_NODES, Reading
from elanus.sim.policies import (
    BALANCE_INTERVAL_S,
    Density,
    data_policy,
    datanode_policy,
    proxy_policy,
)
from elanus.sim.reads import ReadsInTurns
from elanus.sim.stores import MemoryStore, SimMeta
from elanus.sim.turns import Turns
from elanus.sim.verbs import READ_TIMEOUT_S, Verbs

QUERY_NODE = NodeID(3)
PCHANNELS_MAX = 2


class Role(Protocol):
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class Unending:
    """The lease of a role that nobody else can take the place of while it lives."""

    node_id = NodeID(0)

    async def confirm(self) -> None:
        """It holds."""

    def give_up(self, why: str) -> None:
        raise AssertionError(f"nobody ends it: {why}")


@dataclass(frozen=True, slots=True)
class Ground:
    """What all roles of a run stand on. ``compacts``: without being asked. ``stamp``: of the oracle there is,
    ``query_node``: of one that is in its proxies' process; ``fail`` is told of what the run has found."""

    chance: Chance
    scratch: Path
    density: Density
    reading: Reading
    compacts: bool
    clocks: Mapping[str, VirtualClock]
    handles: Mapping[str, Handle]
    log: SimLog
    meta: SimMeta
    channels: SimChannels
    store: MemoryStore
    turns: Turns
    offload: Offload
    stamp: Callable[[], Timestamp]
    query_node: Callable[[], QueryNode | None]
    fail: Callable[[BaseException], None]

    def coordinators(self, life: Life) -> Coordinators:
        """As one life calls them."""
        return Coordinators(
            client(life, self.handles["rootcoord"], RootCoordApi),
            client(life, self.handles["datacoord"], DataCoordApi),
            client(life, self.handles["indexcoord"], IndexCoordApi),
            client(life, self.handles["querycoord"], QueryCoordApi),
        )


@dataclass(frozen=True, slots=True)
class Berth:
    """The life that a role is made for, and whom it knows of. ``session``: of a role that has one."""

    life: Life
    directories: Directories
    session: Session | None

    @property
    def joined(self) -> Session:
        assert self.session is not None, f"{self.life.name} has no session"
        return self.session


class Builders:
    """``oracle``: the latest. ``verbs``: of the latest life of each proxy."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self.oracle: TimestampOracle | None = None
        self.verbs: dict[str, Verbs] = {}

    def build(self, berth: Berth) -> Role:
        if berth.life.role in PROXIES:
            return self._proxy(berth)
        if berth.life.role in PIPELINES:
            return self._pipeline(berth)
        if berth.life.role in QUERY_NODES:
            return self._querynode(berth)
        build: dict[str, Callable[[Berth], Role]] = {
            "rootcoord": self._rootcoord,
            "datacoord": self._datacoord,
            "indexcoord": self._indexcoord,
            "querycoord": self._querycoord,
        }
        return build[berth.life.role](berth)

    def _rootcoord(self, berth: Berth) -> RootCoord:
        ground, life = self._ground, berth.life
        meta, peers = ground.meta.handle(life), ground.coordinators(life)
        self.oracle = TimestampOracle(meta, ground.clocks["rootcoord"], window_ms=3000, update_ms=250)
        return RootCoord(
            Unending(),
            meta,
            ground.log.handle(life),
            self.oracle,
            peers.data,
            peers.index,
            peers.query,
            berth.directories.proxies,
            pchannels_max=PCHANNELS_MAX,
        )

    def _datacoord(self, berth: Berth) -> DataCoord:
        ground, life = self._ground, berth.life
        meta, peers = ground.meta.handle(life), ground.coordinators(life)
        return DataCoord(
            Unending(),
            DataState(meta),
            Manifests(ground.store, ground.offload),
            DeadRows(ground.store, ground.offload),
            ground.log.handle(life),
            ground.clocks["datacoord"],
            peers.root,
            berth.directories.proxies,
            berth.directories.data_nodes,
            GcPorts(peers.index, peers.query, ground.offload),
            data_policy(ground.density, compacts=ground.compacts),
            ImportSetup(
                ServedImports(peers.data, peers.index, peers.query).is_served,
                ImportPolicy(tasks_max=0, retention_ms=0),
            ),
            JobLedger(
                meta,
                ground.clocks["datacoord"],
                lambda address: client(life, ground.handles[address], PipelineApi),
                LedgerPolicy(jobs_max=100, age_max_s=3600),
            ),
        )

    def _indexcoord(self, berth: Berth) -> IndexCoord:
        ground, life = self._ground, berth.life
        peers = ground.coordinators(life)
        return IndexCoord(
            Unending(),
            IndexState(ground.meta.handle(life)),
            ground.clocks["indexcoord"],
            ground.store,
            ground.offload,
            peers.root,
            peers.data,
            berth.directories.proxies,
            lambda address: client(life, ground.handles[address], IndexNodeApi),
            IndexPolicy(rows_min=ground.density.index_rows_min, builds_max=1),
        )

    def _querynode(self, berth: Berth) -> QueryNode:
        ground, log = self._ground, self._ground.log.handle(berth.life)
        if not ground.reading.is_cluster:
            return QueryNode(
                QUERY_NODE, log, ground.store, ground.offload, scratch=ground.scratch, fetches_max=1
            )
        return QueryNode(
            berth.joined.node_id,
            log,
            ground.store,
            ground.offload,
            scratch=ground.scratch / berth.life.role,
            channels=ground.channels.handle(berth.life),
            proxies=_no_payloads,
            fetches_max=1,
        )

    def _querycoord(self, berth: Berth) -> QueryCoord:
        ground, life = self._ground, berth.life
        peers = ground.coordinators(life)
        is_cluster = ground.reading.is_cluster
        return QueryCoord(
            LoadState(ground.meta.handle(life)),
            Peers(
                peers.root,
                peers.data,
                peers.index,
                self._fleet(berth) if is_cluster else self._one_node(life),
                berth.directories.proxies if is_cluster else {},
            ),
            balance_interval_s=BALANCE_INTERVAL_S,
        )

    def _one_node(self, life: Life) -> OneNode:
        return OneNode(QUERY_NODE, client(life, self._ground.handles["querynode"], QueryNodeApi))

    def _fleet(self, berth: Berth) -> ChannelFleet:
        """Whose sessions are those of this run: each life of querycoord has a higher number than the last."""
        channels, numbers = self._ground.channels.handle(berth.life), itertools.count(1)
        return ChannelFleet(
            lambda: berth.directories.query_nodes,
            channels,
            NodeID(berth.life.number),
            lambda: f"{berth.life.name}-{next(numbers)}",
        )

    def _proxy(self, berth: Berth) -> Proxy:
        ground = self._ground
        proxy = Proxy(
            berth.joined,
            ground.coordinators(berth.life),
            self._fan_out(berth) if ground.reading.is_cluster else self._reads_in_process(),
            ground.log.handle(berth.life),
            OwnStamps(ground.stamp),
            ground.offload,
            proxy_policy(ground.density),
            NoMeasures(),
            ground.turns.now_s,
        )
        self.verbs[berth.life.role] = Verbs(proxy, ground.turns)
        return proxy

    def _reads_in_process(self) -> ReadsInTurns:
        return ReadsInTurns(self._ground.query_node, self._ground.turns)

    def _fan_out(self, berth: Berth) -> FanOut:
        ground, peers = self._ground, self._ground.coordinators(berth.life)
        return FanOut(
            berth.joined.node_id,
            f"results-{berth.life.name}",
            ground.channels.handle(berth.life),
            peers.query,
            peers.root,
            READ_TIMEOUT_S,
            berth.directories.query_nodes,
            ground.turns,
        )

    def _pipeline(self, berth: Berth) -> PipelineProcess:
        ground, life, session = self._ground, berth.life, berth.joined
        log, peers = ground.log.handle(life), ground.coordinators(life)

        def ended(error: BaseException | None) -> None:
            if error is not None:
                ground.fail(InvariantBroken("LIVE2", f"{life.name}: {type(error).__name__}: {error}"))
            session.give_up("another has taken its place")

        return PipelineProcess(
            session.node_id,
            life,
            log,
            peers.data,
            peers.index,
            Jobs(life, log, ground.store, ground.scratch, ground.chance),
            Sweeps(life, ground.store, ground.chance),
            datanode_policy(ground.density),
            ended,
        )


def _no_payloads(proxy: NodeID) -> ReadPayloads:
    raise AssertionError("no read or answer of a run is so large")
