"""The whole system in one process: every role's own code, joined by simulated network, log and stores.

What `elanus.server.online` and `elanus.server.pipeline_process` do for real is done here for a run: roles
are built, supervised, and built anew after they died. Two proxies take part, so that ticks are a minimum.

A single pipeline process is the child of a standalone's online process, which holds its session and is told
at once when it ends. Several are a cluster's: each has a lease of its own, which outlives it for a while.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from elanus.core.errors import ElanusError, NotReady
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
from elanus.meta.port import Delete, Put
from elanus.meta.session import Session
from elanus.proxy.measures import NoMeasures
from elanus.proxy.proxy import Coordinators, Proxy
from elanus.proxy.stamps import OwnStamps
from elanus.querycoord.coord import QueryCoord
from elanus.querycoord.fleet import OneNode
from elanus.querycoord.loader import Peers
from elanus.querycoord.state import LoadState
from elanus.querynode.node import QueryNode
from elanus.rootcoord.coord import RootCoord
from elanus.rootcoord.tso import TimestampOracle
from elanus.rpc.datacoord import DataCoordApi
from elanus.rpc.indexcoord import IndexCoordApi
from elanus.rpc.indexnode import IndexNodeApi
from elanus.rpc.pipeline import PipelineApi
from elanus.rpc.querycoord import QueryCoordApi
from elanus.rpc.querynode import QueryNodeApi
from elanus.rpc.rootcoord import RootCoordApi
from elanus.server.import_served import ServedImports
from elanus.server.reads import CurrentReads
from elanus.sim.chance import Chance
from elanus.sim.directories import Directories
from elanus.sim.garbage import GarbageJudge
from elanus.sim.life import Life
from elanus.sim.log import SimLog
from elanus.sim.loop import VirtualClock
from elanus.sim.moment import ReadsOfMoments
from elanus.sim.net import Handle, Network, client
from elanus.sim.pipeline import Jobs, PipelineProcess, Sweeps
from elanus.sim.plan import PIPELINES, PROXIES, ROLES
from elanus.sim.policies import (
    GC_POLICY,
    USUAL,
    Density,
    data_policy,
    datanode_policy,
    proxy_policy,
)
from elanus.sim.records import Records
from elanus.sim.stores import MemoryStore, SimMeta
from elanus.sim.trace import Trace
from elanus.sim.truth import Truth
from elanus.sim.verbs import Verbs

T = TypeVar("T")

QUERY_NODE = NodeID(3)
PCHANNELS_MAX = 2
LEASE_TTL_S = 3
_START_AGAIN_S = 0.3


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


class System:
    """Made and used on one virtual loop. ``scratch``: a directory for files on their way."""

    compacts_without_being_asked = True

    def __init__(
        self,
        chance: Chance,
        trace: Trace,
        scratch: Path,
        density: Density = USUAL,
        pipelines: tuple[str, ...] = PIPELINES[:1],
    ) -> None:
        self._density = density
        self.clocks = {role: VirtualClock() for role in ("rootcoord", "datacoord", "indexcoord", "objects")}
        self.trace = trace
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._chance = chance
        self._scratch = scratch
        self._random = chance.stream("system")
        self.network = Network(chance, trace)
        self.truth = Truth(trace.note)
        self.log = SimLog(chance, self._guarded(self.truth.observe), trace.note)
        self.records = Records(self.log.durable_end, trace)
        self.meta = SimMeta(chance, self._guarded(self._observe_records))
        self.store = MemoryStore(
            chance, self.clocks["objects"].wall_ms, self._guarded(lambda path: self.garbage.deleted(path))
        )
        self.garbage = GarbageJudge(self.records, self.store, self.stamp, GC_POLICY)
        self.handles = {name: Handle(name, self.network) for name in (*ROLES, *pipelines)}
        self.outside = Life("clients", is_outside=True)
        self.roles_of_clients = Coordinators(
            self._root(self.outside),
            self._data(self.outside),
            self._index(self.outside),
            self._query(self.outside),
        )
        self._lives: dict[str, Life] = {}
        self._running: dict[str, Role] = {}
        self._sessions: dict[str, Session] = {}
        self._directories: dict[str, Directories] = {}
        self._pipelines = pipelines
        self._supervisors: list[asyncio.Task[None]] = []
        self._oracle: TimestampOracle | None = None
        self._born = 0
        self._verbs: dict[str, Verbs] = {}
        self._ready = {name: asyncio.Event() for name in self.handles}

    async def start(self) -> None:
        for name in self.handles:
            self._supervisors.append(asyncio.create_task(self._supervise(name)))

    def fail(self, error: BaseException) -> None:
        """The run has found something; the first finding is what it tells."""
        if not self.failure.done():
            self.failure.set_exception(error)

    def _guarded(self, observe: Callable[..., None]) -> Callable[..., None]:
        def watch(*args: Any) -> None:
            try:
                observe(*args)
            except InvariantBroken as error:
                self.fail(error)

        return watch

    def _observe_records(self, operation: Put | Delete) -> None:
        self.records.observe(operation)
        self.garbage.recorded(self.records.owner(operation.key))

    # what clients do

    async def ask(self, proxy: str, what: str, work: Callable[[Verbs], Awaitable[T]]) -> T:
        """Have a proxy carry out a verb. Raises `ElanusError`."""
        return await self.handles[proxy].perform(self.outside, what, lambda _: work(self._verbs[proxy]))

    def check_node(self) -> None:
        """Raises `InvariantBroken` where the query node's state contradicts itself."""
        node = self.query_node()
        if node is not None:
            try:
                node.invariants()
            except AssertionError as error:
                raise InvariantBroken(str(error).partition(":")[0], str(error)) from error

    def reads(self) -> CurrentReads:
        return CurrentReads(self.query_node)

    def query_node(self) -> QueryNode | None:
        life = self._lives.get("querynode")
        if life is None or life.is_over:
            return None
        return cast(QueryNode | None, self.handles["querynode"].instance)

    def stamp(self) -> Timestamp:
        """Raises `NotReady`, `Unavailable`."""
        life = self._lives.get("rootcoord")
        if self._oracle is None or life is None or life.is_stopped:
            raise NotReady("rootcoord is not running; retry when it is back")
        return self._oracle.allocate()

    # disasters

    def crash(self, name: str) -> None:
        self._lives[name].kill()

    def waylay(self, name: str, passages: int) -> None:
        """Crash a role when it has touched the world that often: between any two of its steps."""
        self._lives[name].waylay(passages)

    def hold_appends(self, name: str) -> None:
        """What the role that runs now appends does not arrive in the log until `SimLog.let_go`."""
        self.log.hold(self._lives[name])

    def step_clocks(self, milliseconds: int) -> None:
        """All wall clocks jump, as those of one machine do."""
        for clock in self.clocks.values():
            clock.step_ms(milliseconds)

    async def restart(self, name: str) -> None:
        """Stop a role in an orderly way, as `elanus restart-role` does; its supervisor starts the next.

        One that stands still does not hear of it.
        """
        life = self._lives[name]
        if life.is_over or life.is_stopped:
            return
        role = self._running.pop(name, None)
        if role is None:
            return
        self.handles[name].down()
        await role.stop()
        life.retire()

    def crash_all(self) -> None:
        for name in ROLES:
            self._lives[name].kill()

    def lose_power(self) -> None:
        self.trace.note("POWER LOST")
        for life in self._lives.values():
            life.kill()
        self.truth.cut(self.log.lose_power())

    def stall(self, name: str, seconds: float) -> None:
        """It is taken for dead and replaced; later it goes on where it was."""
        life = self._lives[name]
        if life.is_over:
            return
        self.trace.note(f"STALL of {life.name}")
        life.stall()
        asyncio.get_running_loop().call_later(seconds, self._wake, life)

    def pause(self, name: str, seconds: float) -> None:
        """It stands still, and nobody is told: a lease of its own may end over it."""
        life = self._lives[name]
        if life.is_over or life.is_stopped:
            return
        self.trace.note(f"PAUSE of {life.name}")
        life.pause()
        asyncio.get_running_loop().call_later(seconds, self._wake, life)

    def _wake(self, life: Life) -> None:
        self.trace.note(f"{life.name} goes on")
        life.release()

    def waiting_for(self) -> list[str]:
        """The roles that are not up."""
        return [name for name, ready in self._ready.items() if not ready.is_set()]

    async def all_up(self) -> None:
        for ready in self._ready.values():
            await ready.wait()

    # lives

    async def _supervise(self, name: str) -> None:
        while True:
            life = self._new_life(name)
            self._directories[name] = Directories(self.meta.handle(life), life, self.handles)
            if await self._done(self._joined(name, life), life):
                role = self._build(name, life)
                if await self._done(role.start(), life):
                    await self._served(name, role, life)
            session = self._sessions.pop(name, None)
            if session is not None and (self._is_child(name) or not life.is_stopped):
                # Who is killed amid this leaves the lease to run out.
                await asyncio.wait([asyncio.ensure_future(session.close())], timeout=LEASE_TTL_S)
            life.retire()
            await self._directories[name].stop()
            steps = 4 if name in self._pipelines else 1
            await asyncio.sleep(_START_AGAIN_S * (1 + steps * self._random.random()))

    async def _joined(self, name: str, life: Life) -> None:
        """Coordinators of a run have no successors, and need no session."""
        await self._directories[name].start()
        if name not in (*PROXIES, *self._pipelines):
            return
        session = await Session.register(
            self.meta.handle(self.outside if self._is_child(name) else life),
            "proxy" if name in PROXIES else "datanode",
            name,
            ttl_s=LEASE_TTL_S,
            monotonic_s=asyncio.get_running_loop().time,
        )
        if life.is_over:
            await session.close()
        else:
            self._sessions[name] = session

    def _is_child(self, name: str) -> bool:
        """Whether a parent holds its session, whom no fault strikes."""
        return self._pipelines == (name,)

    async def _served(self, name: str, role: Role, life: Life) -> None:
        """Returns when its life is over, or its session lost: then it has been stopped."""
        self._running[name] = role
        self.handles[name].up(role, life)
        self.trace.note(f"{life.name} is up")
        self._ready[name].set()
        ends: list[asyncio.Future[Any]] = [life.ended]
        if name in self._sessions:
            ends.append(asyncio.ensure_future(self._sessions[name].lost.wait()))
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        self._ready[name].clear()
        if not life.is_over:
            self.trace.note(f"{life.name} has lost its session")
            await asyncio.sleep(_START_AGAIN_S * self._random.random())  # it is not stopped at once
        self._running.pop(name, None)
        if not life.is_over:
            self.handles[name].down()
            await role.stop()
        self.handles[name].down()

    async def _done(self, work: Awaitable[None], life: Life) -> bool:
        """Whether a life came to the end of its work."""
        starting = asyncio.ensure_future(work)
        await asyncio.wait([starting, life.ended], return_when=asyncio.FIRST_COMPLETED)
        if life.is_over:
            starting.add_done_callback(functools.partial(self._done_late, life))
            return False
        try:
            starting.result()
        except ElanusError as error:
            self.trace.note(f"{life.name} did not start: {type(error).__name__}")
            life.kill()
            return False
        return True

    def _done_late(self, life: Life, starting: asyncio.Future[None]) -> None:
        """Nobody waits any more for the work of a life that is over, if it ends at all."""
        error = None if starting.cancelled() else starting.exception()
        if error is not None and not isinstance(error, ElanusError):
            self.fail(InvariantBroken("LIVE2", f"{life.name}: {type(error).__name__}: {error}"))

    def _new_life(self, name: str) -> Life:
        self._born += 1
        life = Life(f"{name}#{self._born}")
        self._lives[name] = life
        return life

    # how each role is made

    def _build(self, name: str, life: Life) -> Role:
        if name in PROXIES:
            return self._build_proxy(name, life)
        if name in self._pipelines:
            return self._build_pipeline(name, life)
        build: dict[str, Callable[[Life], Role]] = {
            "rootcoord": self._build_rootcoord,
            "datacoord": self._build_datacoord,
            "indexcoord": self._build_indexcoord,
            "querynode": self._build_querynode,
            "querycoord": self._build_querycoord,
        }
        return build[name](life)

    def _root(self, life: Life) -> RootCoordApi:
        return client(life, self.handles["rootcoord"], RootCoordApi)

    def _data(self, life: Life) -> DataCoordApi:
        return client(life, self.handles["datacoord"], DataCoordApi)

    def _index(self, life: Life) -> IndexCoordApi:
        return client(life, self.handles["indexcoord"], IndexCoordApi)

    def _query(self, life: Life) -> QueryCoordApi:
        return client(life, self.handles["querycoord"], QueryCoordApi)

    async def _offload(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Work that blocks is done at once; what surrounds it goes on in between."""
        await asyncio.sleep(0.001 * self._random.random())
        return function(*args, **kwargs)

    def _build_rootcoord(self, life: Life) -> RootCoord:
        meta = self.meta.handle(life)
        self._oracle = TimestampOracle(meta, self.clocks["rootcoord"], window_ms=3000, update_ms=250)
        return RootCoord(
            Unending(),
            meta,
            self.log.handle(life),
            self._oracle,
            self._data(life),
            self._index(life),
            self._query(life),
            self._directories["rootcoord"].proxies,
            pchannels_max=PCHANNELS_MAX,
        )

    def _build_datacoord(self, life: Life) -> DataCoord:
        return DataCoord(
            Unending(),
            DataState(self.meta.handle(life)),
            Manifests(self.store, self._offload),
            DeadRows(self.store, self._offload),
            self.log.handle(life),
            self.clocks["datacoord"],
            self._root(life),
            self._directories["datacoord"].proxies,
            self._directories["datacoord"].data_nodes,
            GcPorts(self._index(life), self._query(life), self._offload),
            data_policy(self._density, compacts=self.compacts_without_being_asked),
            ImportSetup(
                ServedImports(self._data(life), self._index(life), self._query(life)).is_served,
                ImportPolicy(tasks_max=0, retention_ms=0),
            ),
            JobLedger(
                self.meta.handle(life),
                self.clocks["datacoord"],
                lambda address: client(life, self.handles[address], PipelineApi),
                LedgerPolicy(jobs_max=100, age_max_s=3600),
            ),
        )

    def _build_indexcoord(self, life: Life) -> IndexCoord:
        return IndexCoord(
            Unending(),
            IndexState(self.meta.handle(life)),
            self.clocks["indexcoord"],
            self.store,
            self._offload,
            self._root(life),
            self._data(life),
            self._directories["indexcoord"].proxies,
            lambda address: client(life, self.handles[address], IndexNodeApi),
            IndexPolicy(rows_min=self._density.index_rows_min, builds_max=1),
        )

    def _build_querynode(self, life: Life) -> QueryNode:
        return QueryNode(QUERY_NODE, self.log.handle(life), self.store, self._offload, scratch=self._scratch)

    def _build_querycoord(self, life: Life) -> QueryCoord:
        node = client(life, self.handles["querynode"], QueryNodeApi)
        fleet = OneNode(QUERY_NODE, node)
        peers = Peers(self._root(life), self._data(life), self._index(life), fleet, {})
        return QueryCoord(LoadState(self.meta.handle(life)), peers)

    def _build_proxy(self, name: str, life: Life) -> Proxy:
        nodes = ReadsOfMoments(self.reads(), self.stamp)
        coordinators = Coordinators(self._root(life), self._data(life), self._index(life), self._query(life))
        proxy = Proxy(
            self._sessions[name],
            coordinators,
            nodes,
            self.log.handle(life),
            OwnStamps(nodes.stamp),
            self._offload,
            proxy_policy(self._density),
            NoMeasures(),
        )
        self._verbs[name] = Verbs(proxy, nodes, self.reads())
        return proxy

    def _build_pipeline(self, name: str, life: Life) -> PipelineProcess:
        log, session = self.log.handle(life), self._sessions[name]

        def ended(error: BaseException | None) -> None:
            if error is not None:
                self.fail(InvariantBroken("LIVE2", f"{life.name}: {type(error).__name__}: {error}"))
            session.give_up("another has taken its place")

        return PipelineProcess(
            session.node_id,
            life,
            log,
            self._data(life),
            self._index(life),
            Jobs(life, log, self.store, self._scratch, self._chance),
            Sweeps(life, self.store, self._chance),
            datanode_policy(self._density),
            ended,
        )
