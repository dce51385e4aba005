"""How each role of a run is built: the role's own code, on the simulated network, log, stores and channels.

`elanus.server.builders` is the counterpart for real processes.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from elanus.api.datacoord import DataCoordApi
from elanus.api.indexcoord import IndexCoordApi
from elanus.api.indexnode import IndexNodeApi
from elanus.api.pipeline import PipelineApi
from elanus.api.query_channel import ReadPayloads
from elanus.api.querycoord import QueryCoordApi
from elanus.api.querynode import QueryNodeApi
from elanus.api.rootcoord import RootCoordApi
from elanus.core.ids import NodeID
from elanus.core.invariants import InvariantBroken
from elanus.core.nodes import NodesAs
from elanus.core.offload import Offload, Pools
from elanus.core.rate_limits import EVERYTHING
from elanus.core.timestamps import Timestamp
from elanus.datacoord.collecting import GcPorts
from elanus.datacoord.coord import DataCoord, DataDependencies
from elanus.datacoord.ledger import JobLedger, LedgerPolicy
from elanus.indexcoord.builds import IndexPolicy
from elanus.indexcoord.coord import IndexCoord
from elanus.indexcoord.state import IndexState
from elanus.log.port import Appender, FencingLog
from elanus.meta.election import FencedMeta
from elanus.meta.session import Session
from elanus.proxy.fanout.client import FanOut
from elanus.proxy.role.admission import Admission
from elanus.proxy.role.measures import NoMeasures
from elanus.proxy.role.proxy import Coordinators, Proxy
from elanus.proxy.role.stamps import OwnStamps, RemoteStamps, Stamps
from elanus.querycoord.coord import QueryCoord
from elanus.querycoord.fleet import ChannelFleet, OneNode
from elanus.querycoord.loader import QueryDependencies
from elanus.querycoord.state import LoadState
from elanus.querynode.node import ChannelReads, QueryNode, QueryNodePolicy
from elanus.rootcoord.coord import RootCoord
from elanus.rootcoord.tso import TimestampOracle
from elanus.server.import_served import ServedImports
from elanus.server.roles import Role
from elanus.server.serving.members import Members
from elanus.sim.chance import Chance
from elanus.sim.channels import SimChannels
from elanus.sim.client_verbs import READ_TIMEOUT_S, ClientVerbs
from elanus.sim.coop_threads import Turns
from elanus.sim.directories import Directories
from elanus.sim.import_jobs import SimImports
from elanus.sim.incarnation import Life
from elanus.sim.log import SimLog
from elanus.sim.loop import VirtualClock
from elanus.sim.mirrors import MirroredReads, SimMirror, mirror_id, mirror_of
from elanus.sim.net import Handle, Network, client
from elanus.sim.pipeline import Jobs, PipelineProcess, Sweeps
from elanus.sim.plan import MIRROR, PCHANNELS, PIPELINES, PROXIES, QUERY_NODES, Reading
from elanus.sim.policies import (
    BALANCE_INTERVAL_S,
    DELETE_LIMITS,
    INLINE_ROWS_MAX,
    Density,
    data_policy,
    datanode_policy,
    interim_rules,
    proxy_policy,
)
from elanus.sim.reads_in_turns import ReadsInTurns
from elanus.sim.stores import MemoryStore, SimMeta
from elanus.sim.trace import Trace

QUERY_NODE = NodeID(3)


@dataclass(frozen=True, slots=True)
class SimDependencies:
    """The stores and peers that all roles of a run share.

    ``compacts``: whether compaction starts without being requested. ``stamp``: takes a timestamp from the
    current oracle. ``query_node``: the query node that runs in the proxies' process, if there is one;
    ``mirror``: that of the serving process, which ``members`` lists while it runs. ``users_files``: those
    to import. ``fail``: called with what the run has found.
    """

    chance: Chance
    scratch: Path
    density: Density
    reading: Reading
    compacts: bool
    clocks: Mapping[str, VirtualClock]
    handles: Mapping[str, Handle]
    network: Network
    log: SimLog
    meta: SimMeta
    channels: SimChannels
    store: MemoryStore
    users_files: MemoryStore
    turns: Turns
    offload: Offload
    stamp: Callable[[], Timestamp]
    query_node: Callable[[], QueryNode | None]
    mirror: Callable[[], SimMirror | None]
    members: Members
    trace: Trace
    fail: Callable[[BaseException], None]

    def coordinators(self, life: Life) -> Coordinators:
        """The clients that one life calls the coordinators with."""
        return Coordinators(
            client(life, self.handles["rootcoord"], RootCoordApi),
            client(life, self.handles["datacoord"], DataCoordApi),
            client(life, self.handles["indexcoord"], IndexCoordApi),
            client(life, self.handles["querycoord"], QueryCoordApi),
        )


@dataclass(frozen=True, slots=True)
class Berth:
    """The life that a role is built for, and the peers it can find. ``session``: None if it has none."""

    life: Life
    directories: Directories
    session: Session | None

    @property
    def joined(self) -> Session:
        assert self.session is not None, f"{self.life.name} has no session"
        return self.session


class CalledStamps(RemoteStamps):
    """Writes and reports get their stamps by calls. Reads, whose threads must not wait, take ``own`` ones."""

    def __init__(self, allocate: Callable[[int], Awaitable[Timestamp]], own: Callable[[], Timestamp]) -> None:
        super().__init__(allocate, READ_TIMEOUT_S)
        self._own = own

    def now(self) -> Timestamp:
        return self._own()

    def about_now(self) -> Timestamp:
        return self._own()


class SimBuilders:
    """Builds the roles of a run. ``oracle``: the latest. ``verbs``: those of each proxy's latest life."""

    def __init__(self, needs: SimDependencies) -> None:
        self._needs = needs
        self.oracle: TimestampOracle | None = None
        self.verbs: dict[str, ClientVerbs] = {}

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
            MIRROR: self._mirror,
        }
        return build[berth.life.role](berth)

    def _fenced(self, berth: Berth) -> FencedMeta:
        return FencedMeta(self._needs.meta.handle(berth.life), berth.joined)

    def _rootcoord(self, berth: Berth) -> RootCoord:
        needs, life = self._needs, berth.life
        meta, peers = self._fenced(berth), needs.coordinators(life)
        self.oracle = TimestampOracle(meta, needs.clocks["rootcoord"], window_ms=3000, update_ms=250)
        return RootCoord(
            berth.joined,
            meta,
            needs.log.handle(life),
            self.oracle,
            peers.data,
            peers.index,
            peers.query,
            berth.directories.proxies,
            pchannels_max=len(PCHANNELS),
            idle_tick_ms=needs.density.idle_tick_ms,
        )

    def _datacoord(self, berth: Berth) -> DataCoord:
        needs, life = self._needs, berth.life
        meta, peers = self._fenced(berth), needs.coordinators(life)
        dependencies = DataDependencies(
            lease=berth.joined,
            meta=meta,
            store=needs.store,
            log=needs.log.handle(life),
            clock=needs.clocks["datacoord"],
            rootcoord=peers.root,
            proxies=berth.directories.proxies,
            data_nodes=berth.directories.data_nodes,
            gc=GcPorts(peers.index, peers.query, needs.offload, needs.offload),
            ledger=JobLedger(
                meta,
                needs.clocks["datacoord"],
                lambda address: client(life, needs.handles[address], PipelineApi),
                LedgerPolicy(jobs_max=100, age_max_s=3600),
            ),
            import_served=ServedImports(peers.data, peers.index, peers.query, peers.root).is_served,
        )
        return DataCoord(dependencies, data_policy(needs.density, compacts=needs.compacts))

    def _indexcoord(self, berth: Berth) -> IndexCoord:
        needs, life = self._needs, berth.life
        peers = needs.coordinators(life)
        return IndexCoord(
            berth.joined,
            IndexState(self._fenced(berth)),
            needs.clocks["indexcoord"],
            peers.root,
            peers.data,
            berth.directories.proxies,
            lambda address: client(life, needs.handles[address], IndexNodeApi),
            IndexPolicy(rows_min=needs.density.index_rows_min),
        )

    def _mirror(self, berth: Berth) -> SimMirror:
        needs, life = self._needs, berth.life
        return SimMirror(
            mirror_id(life),
            needs.log.handle(life),
            needs.store,
            Pools.one(needs.offload),
            scratch=needs.scratch / MIRROR,
            policy=self._querynode_policy(),
        )

    def _querynode(self, berth: Berth) -> QueryNode:
        needs, life, is_cluster = self._needs, berth.life, self._needs.reading.is_cluster
        reads = ChannelReads(needs.channels.handle(life), _no_payloads, needs.offload) if is_cluster else None
        return QueryNode(
            berth.joined.node_id if is_cluster else QUERY_NODE,
            needs.log.handle(life),
            needs.store,
            Pools.one(needs.offload),
            scratch=needs.scratch / life.role,
            policy=self._querynode_policy(),
            channel_reads=reads,
        )

    def _querynode_policy(self) -> QueryNodePolicy:
        return QueryNodePolicy(
            delete_limits=DELETE_LIMITS,
            inline_rows_max=INLINE_ROWS_MAX,
            interim=interim_rules(self._needs.density),
            fetches_max=1,
            new_lock=self._needs.turns.lock,
        )

    def _querycoord(self, berth: Berth) -> QueryCoord:
        needs, life = self._needs, berth.life
        peers = needs.coordinators(life)
        is_cluster = needs.reading.is_cluster
        return QueryCoord(
            LoadState(self._fenced(berth)),
            QueryDependencies(
                peers.root,
                peers.data,
                peers.index,
                self._fleet(berth) if is_cluster else self._one_node(life),
                berth.directories.proxies if is_cluster else {},
                NodesAs(needs.members, lambda node_id: mirror_of(needs.members, node_id, life))
                if needs.reading.has_mirror
                else None,
            ),
            balance_interval_s=BALANCE_INTERVAL_S,
        )

    def _one_node(self, life: Life) -> OneNode:
        return OneNode(QUERY_NODE, client(life, self._needs.handles["querynode"], QueryNodeApi))

    def _fleet(self, berth: Berth) -> ChannelFleet:
        """The fleet of one querycoord life. Each life acts under a higher number than the last."""
        channels, numbers = self._needs.channels.handle(berth.life), itertools.count(1)
        return ChannelFleet(
            lambda: berth.directories.query_nodes,
            channels,
            NodeID(berth.life.number),
            lambda: f"{berth.life.name}-{next(numbers)}",
        )

    def _proxy(self, berth: Berth) -> Proxy:
        needs = self._needs
        proxy = Proxy(
            berth.joined,
            needs.coordinators(berth.life),
            self._fan_out(berth) if needs.reading.is_cluster else self._reads_in_process(berth),
            self._appender(berth),
            self._stamps(berth),
            needs.offload,
            proxy_policy(needs.density),
            NoMeasures(),
            needs.turns.now_s,
        )
        # Databases have no properties here, and a verb must not block the one thread by asking for them.
        proxy.admission = Admission(lambda _: EVERYTHING, {}, lambda: 1, needs.turns.now_s)
        self.verbs[berth.life.role] = ClientVerbs(proxy, berth.life, needs.turns)
        return proxy

    def _stamps(self, berth: Berth) -> Stamps:
        needs = self._needs
        if not needs.network.has_remote_oracle:
            return OwnStamps(needs.stamp)
        return CalledStamps(needs.coordinators(berth.life).root.alloc_timestamp, needs.stamp)

    def _appender(self, berth: Berth) -> Appender:
        log = self._needs.log.handle(berth.life)
        if not isinstance(log, FencingLog):
            return log
        return log.appender(berth.joined.node_id, berth.joined.confirm_in_store)

    def _reads_in_process(self, berth: Berth) -> ReadsInTurns:
        needs = self._needs
        if needs.reading.has_mirror and berth.life.role == PROXIES[-1]:
            querycoord = needs.coordinators(berth.life).query
            return MirroredReads(needs.mirror, needs.query_node, querycoord, needs.turns, needs.trace)
        return ReadsInTurns(needs.query_node, needs.coordinators(berth.life).query, needs.turns)

    def _fan_out(self, berth: Berth) -> FanOut:
        needs, peers = self._needs, self._needs.coordinators(berth.life)
        return FanOut(
            berth.joined.node_id,
            f"results-{berth.life.name}",
            needs.channels.handle(berth.life),
            peers.query,
            READ_TIMEOUT_S,
            berth.directories.query_nodes,
            needs.turns,
        )

    def _pipeline(self, berth: Berth) -> PipelineProcess:
        needs, life, session = self._needs, berth.life, berth.joined
        log, peers = needs.log.handle(life), needs.coordinators(life)

        def ended(error: BaseException | None) -> None:
            if error is not None:
                needs.fail(InvariantBroken("LIVE2", f"{life.name}: {type(error).__name__}: {error}"))
            session.give_up("another has taken its place")

        jobs = Jobs(life, log, needs.store, needs.scratch, needs.chance)
        return PipelineProcess(
            session.node_id,
            life,
            log,
            peers.data,
            peers.index,
            jobs,
            Sweeps(life, needs.store, needs.chance),
            SimImports(jobs, peers.root, needs.users_files, needs.store, needs.scratch),
            datanode_policy(needs.density),
            ended,
        )


def _no_payloads(proxy: NodeID) -> ReadPayloads:
    raise AssertionError("no read or answer of a run is so large")
