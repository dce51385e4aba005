"""The whole system in one process: every role's own code, joined by simulated network, log and stores.

This is the counterpart of `elanus.server.online` and `elanus.server.standalone_pipeline` for a run: roles are
built, supervised, and rebuilt after they died. Two proxies take part, so that ticks are a minimum.

A single pipeline is that of a standalone, whose online process holds its session and is notified at once
when it ends. Several belong to a cluster: each has its own lease, which outlives it for a
while. The same holds for query nodes: a single one runs in its proxies' process, several have leases and
query channels.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from elanus.core.errors import ElanusError, NotReady
from elanus.core.invariants import InvariantBroken
from elanus.core.timestamps import Timestamp
from elanus.meta.election import elect
from elanus.meta.port import Delete, Put
from elanus.meta.session import Session
from elanus.querynode.node import QueryNode
from elanus.server.roles import Role
from elanus.server.serving.members import Members
from elanus.sim.builders import Berth, SimBuilders, SimDependencies
from elanus.sim.chance import Chance
from elanus.sim.channels import SimChannels
from elanus.sim.client_verbs import ClientVerbs
from elanus.sim.coop_threads import Turns
from elanus.sim.directories import Directories
from elanus.sim.garbage import GarbageJudge
from elanus.sim.import_tasks import ImportTasks
from elanus.sim.incarnation import Life, working_for
from elanus.sim.log import SimLog
from elanus.sim.loop import VirtualClock
from elanus.sim.mirrors import SimMirror, join, mirror_id
from elanus.sim.net import Handle, Network
from elanus.sim.plan import COORDINATORS, MIRROR, ONE_NODE, PIPELINES, PROXIES, Reading, roles_of
from elanus.sim.policies import (
    GC_POLICY,
    USUAL,
    Density,
)
from elanus.sim.records import Records
from elanus.sim.scenario import FaultKind
from elanus.sim.stores import MemoryStore, SimMeta
from elanus.sim.trace import Trace
from elanus.sim.truth import Truth

T = TypeVar("T")

LEASE_TTL_S = 3
_START_AGAIN_S = 0.3


class System:
    """The simulated system, on one virtual loop. ``scratch``: a directory for temporary files."""

    compacts_without_being_asked = True

    def __init__(
        self,
        chance: Chance,
        trace: Trace,
        scratch: Path,
        density: Density = USUAL,
        pipelines: tuple[str, ...] = PIPELINES[:1],
        reading: Reading = ONE_NODE,
    ) -> None:
        self.clocks = {role: VirtualClock() for role in ("rootcoord", "datacoord", "indexcoord", "objects")}
        self.trace = trace
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._random = chance.stream("system")
        self._chance = chance
        self.turns = Turns()
        self.network = Network(chance, trace)
        self.truth = Truth(
            trace.note,
            lambda collection_id: self.records.columns[collection_id],
            lambda collection_id: collection_id in self.records.key_partitions,
        )
        self.log = SimLog(chance, self._guarded(self.truth.observe), trace.note)
        self.records = Records(
            self.log.durable_end, trace, lambda task: self.imports.observe(task), self.truth.cloned
        )
        self.imports = ImportTasks(self.truth, self.records, trace.note)
        self.meta = SimMeta(chance, self._guarded(self._observe_records))
        self.channels = SimChannels(chance)
        self.store = MemoryStore(
            chance,
            self.clocks["objects"].wall_ms,
            self._guarded(lambda path: self.garbage.deleted(path)),
            self._take_time,
        )
        self.users_files = MemoryStore(
            chance, self.clocks["objects"].wall_ms, lambda path: None, self._take_time
        )
        expiry = self.clocks["datacoord"].latest_ms
        self.garbage = GarbageJudge(self.records, self.store, self.stamp, expiry, GC_POLICY)
        self.reading = reading
        self.members = Members()
        self.ttl_s = density.ttl_s
        self._roles = roles_of(reading)
        self.handles = {name: Handle(name, self.network) for name in (*self._roles, *pipelines)}
        self.outside = Life("clients", is_outside=True)
        needs = self._dependencies(scratch, density)
        self.roles_of_clients = needs.coordinators(self.outside)
        self._builders = SimBuilders(needs)
        self._lives: dict[str, Life] = {}
        self._running: dict[str, Role] = {}
        self._sessions: dict[str, Session] = {}
        self._directories: dict[str, Directories] = {}
        self._pipelines = pipelines
        self._supervisors: list[asyncio.Task[None]] = []
        self._left: dict[str, asyncio.Future[None]] = {}
        """By role: set when its instance was replaced without knowing it."""
        self._former: dict[Life, asyncio.Task[None]] = {}
        self._born = 0
        self._ready = {name: asyncio.Event() for name in self.handles}

    def _dependencies(self, scratch: Path, density: Density) -> SimDependencies:
        return SimDependencies(
            chance=self._chance,
            scratch=scratch,
            density=density,
            reading=self.reading,
            compacts=self.compacts_without_being_asked,
            clocks=self.clocks,
            handles=self.handles,
            network=self.network,
            log=self.log,
            meta=self.meta,
            channels=self.channels,
            store=self.store,
            users_files=self.users_files,
            turns=self.turns,
            offload=self._offload,
            stamp=self.stamp,
            query_node=lambda: self._running_node("querynode"),
            mirror=lambda: cast(SimMirror | None, self._running_node(MIRROR)),
            members=self.members,
            trace=self.trace,
            fail=self.fail,
        )

    async def start(self) -> None:
        for name in self.handles:
            self._supervisors.append(asyncio.create_task(self._supervise(name)))

    def fail(self, error: BaseException) -> None:
        """Record what the run has found; only the first finding is reported."""
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

    async def ask(self, proxy: str, what: str, work: Callable[[ClientVerbs], Awaitable[T]]) -> T:
        """Have a proxy carry out a verb. Raises `ElanusError`."""
        verbs = self._builders.verbs
        return await self.handles[proxy].perform(self.outside, what, lambda _: work(verbs[proxy]))

    def is_under_way(self, method: str) -> bool:
        """Whether a call of the method to any role may yet have an effect, perhaps for the second time."""
        return any(handle.is_under_way(method) for handle in self.handles.values())

    def check_nodes(self) -> None:
        """Check the state of the query nodes. Raises `InvariantBroken` where it contradicts itself."""
        for node in self.query_nodes():
            try:
                node.invariants()
            except AssertionError as error:
                raise InvariantBroken(str(error).partition(":")[0], str(error)) from error

    def query_nodes(self) -> list[QueryNode]:
        """The query nodes that are up."""
        nodes = (self._running_node(name) for name in self.reading.query_nodes)
        return [node for node in nodes if node is not None]

    def _running_node(self, name: str) -> QueryNode | None:
        life = self._lives.get(name)
        if life is None or life.is_over:
            return None
        return cast(QueryNode | None, self.handles[name].instance)

    def stamp(self) -> Timestamp:
        """Allocate a timestamp. Raises `NotReady`, `Unavailable`."""
        life = self._lives.get("rootcoord")
        oracle = self._builders.oracle
        if oracle is None or life is None or life.is_stopped:
            raise NotReady("rootcoord is not running; retry when it is back")
        return oracle.allocate()

    # disasters

    def crash(self, name: str) -> None:
        self._lives[name].kill()

    def waylay(self, name: str, passages: int) -> None:
        """Crash a role after it has passed its gate this many times: between any two of its steps."""
        self._lives[name].waylay(passages)

    def hold_appends(self, name: str) -> None:
        """Hold back what the current instance of the role appends to the log until `SimLog.let_go`."""
        self.log.hold(self._lives[name])

    def step_clocks(self, milliseconds: int) -> None:
        """Make all wall clocks jump, as on a single machine."""
        for clock in self.clocks.values():
            clock.step_ms(milliseconds)

    async def restart(self, name: str) -> None:
        """Stop a role in an orderly way, as `elanus restart-role` does; its supervisor starts the next.

        A role that is stopped already (killed, stalled or paused) is not restarted.
        """
        life = self._lives[name]
        if life.is_over or life.is_stopped:
            return
        role = self._running.pop(name, None)
        if role is None:
            return
        self.handles[name].down()
        with working_for(life):
            await role.stop()
        life.retire()

    def crash_all(self) -> None:
        for life in (*self._former, *(self._lives[name] for name in self._roles)):
            life.kill()

    def lose_power(self) -> None:
        self.trace.note("POWER LOST")
        for life in (*self._former, *self._lives.values()):
            life.kill()
        self.channels.lose()
        self.truth.cut(self.log.lose_power())

    def stall(self, name: str, seconds: float) -> None:
        """Stall a life: it is considered dead and replaced; later it continues where it was."""
        life = self._lives[name]
        if life.is_over:
            return
        self.trace.note(f"STALL of {life.name}")
        life.stall()
        asyncio.get_running_loop().call_later(seconds, self._wake, life)

    def pause(self, name: str, seconds: float) -> None:
        """Pause a life without notifying anybody: its lease may expire meanwhile."""
        life = self._lives[name]
        if life.is_over or life.is_stopped:
            return
        self.trace.note(f"PAUSE of {life.name}")
        life.pause()
        asyncio.get_running_loop().call_later(seconds, self._wake, life)

    def revoke(self, name: str) -> None:
        """End the lease of a role while its holder believes in it, as an operator can in etcd."""
        session = self._sessions.get(name)
        if session is not None:
            self._revoking = asyncio.ensure_future(self.meta.store.revoke_lease(session.lease))

    def replace_root(self, behind: Sequence[str], seconds: float) -> None:
        """End the session of rootcoord, which goes on: it notices at its next renewal or transaction.

        ``behind``: the roles that do not know of its successor for this many seconds.
        """
        name = "rootcoord"
        life, role, session = self._lives[name], self._running.get(name), self._sessions.get(name)
        if role is None or session is None or life.is_over or life.is_stopped:
            return
        self.trace.note(f"{life.name} is replaced, unknown to {', '.join(behind)}")
        del self._running[name], self._sessions[name]
        self._revoking = asyncio.ensure_future(self.meta.store.revoke_lease(session.lease))
        self.handles[name].replace(frozenset(behind), seconds)
        ending = self._until_it_knows(role, life, session, self._directories[name])
        self._former[life] = asyncio.create_task(ending)
        self._left[name].set_result(None)

    async def _until_it_knows(
        self, role: Role, life: Life, session: Session, directories: Directories
    ) -> None:
        lost = asyncio.ensure_future(session.lost.wait())
        await asyncio.wait((life.ended, lost), return_when=asyncio.FIRST_COMPLETED)
        if not life.is_over:
            self.trace.note(f"{life.name} knows that it was replaced")
            await self._stopped(role, life)
        await asyncio.wait([asyncio.ensure_future(session.close())], timeout=LEASE_TTL_S)
        life.retire()
        await directories.stop()
        del self._former[life]

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
            self._directories[name] = Directories(
                self.meta.handle(life), life, self.handles, is_cluster=self.reading.is_cluster
            )
            if await self._done(self._joined(name, life), life):
                session, directories = self._sessions.get(name), self._directories[name]
                with working_for(life):
                    role = self._builders.build(Berth(life, directories, session))
                if await self._done(role.start(), life):
                    await self._served(name, role, life)
                    if life in self._former:
                        await asyncio.sleep(_START_AGAIN_S)
                        continue
            session = self._sessions.pop(name, None)
            if session is not None and (self._is_replaced_at_once(name) or not life.is_stopped):
                # A role that is killed meanwhile leaves the lease to run out.
                await asyncio.wait([asyncio.ensure_future(session.close())], timeout=LEASE_TTL_S)
            life.retire()
            await self._directories[name].stop()
            steps = 4 if name in self._pipelines else 1
            await asyncio.sleep(_START_AGAIN_S * (1 + steps * self._random.random()))

    async def _joined(self, name: str, life: Life) -> None:
        """Join the cluster."""
        await self._directories[name].start()
        role = self._role_with_lease(name)
        if role is None:
            return
        join = elect if name in COORDINATORS else Session.register
        session = await join(
            self.meta.handle(self.outside if self._is_replaced_at_once(name) else life),
            role,
            name,
            ttl_s=LEASE_TTL_S,
            monotonic_s=asyncio.get_running_loop().time,
        )
        if life.is_over:
            await session.close()
        else:
            self._sessions[name] = session

    def _role_with_lease(self, name: str) -> str | None:
        if name in PROXIES:
            return "proxy"
        if name in COORDINATORS:
            return name
        if name in self._pipelines:
            return "datanode"
        return "querynode" if self.reading.is_cluster and name in self.reading.query_nodes else None

    def _is_replaced_at_once(self, name: str) -> bool:
        """Whether its session ends with its life, and never before: no fault strikes the one who holds it."""
        return name in COORDINATORS or self._pipelines == (name,)

    async def _served(self, name: str, role: Role, life: Life) -> None:
        """Return when the life is over, or when its session was lost and the role has been stopped."""
        self._running[name] = role
        session = self._sessions.get(name)
        node_id = mirror_id(life) if name == MIRROR else None if session is None else session.node_id
        self.handles[name].up(role, life, node_id)
        if name == MIRROR:
            join(self.members, life, self.handles[name])
        self.trace.note(f"{life.name} is up")
        self._ready[name].set()
        ends: list[asyncio.Future[Any]] = [life.ended]
        if name in self._sessions:
            ends.append(asyncio.ensure_future(self._sessions[name].lost.wait()))
        left = self._left[name] = asyncio.get_running_loop().create_future()
        ends.append(left)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        self._ready[name].clear()
        if left.done():
            return
        if name == MIRROR:
            self.members.leave(mirror_id(life))
        if not life.is_over:
            self.trace.note(f"{life.name} has lost its session")
            await asyncio.sleep(_START_AGAIN_S * self._random.random())  # it is not stopped at once
        self._running.pop(name, None)
        if not life.is_over:
            self.handles[name].down()
            await self._stopped(role, life)
        self.handles[name].down()

    async def _stopped(self, role: Role, life: Life) -> None:
        """Return when the role has stopped, or was killed meanwhile."""
        with working_for(life):
            stopping = asyncio.ensure_future(role.stop())
        await asyncio.wait([stopping, life.ended], return_when=asyncio.FIRST_COMPLETED)
        if stopping.done():
            stopping.result()
        else:
            stopping.add_done_callback(functools.partial(self._done_late, life))

    async def _done(self, work: Awaitable[None], life: Life) -> bool:
        """Whether the life completed this work."""
        with working_for(life):
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
        """Look at the result of work whose life is over: nobody else waits for it."""
        error = None if starting.cancelled() else starting.exception()
        if error is not None and not isinstance(error, ElanusError):
            self.fail(InvariantBroken("LIVE2", f"{life.name}: {type(error).__name__}: {error}"))

    def _new_life(self, name: str) -> Life:
        self._born += 1
        life = Life(name, self._born)
        self._lives[name] = life
        return life

    def _take_time(self) -> None:
        """Have a thread that uses the object store wait while it is slow."""
        if self.turns.is_in_thread and (slow := self._chance.meets(FaultKind.STORE_SLOW)) is not None:
            self.turns.sleep(slow.amount)

    async def _offload(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Carry out blocking work; other tasks run before it begins, and while it waits for slow objects."""
        await asyncio.sleep(0.001 * self._random.random())
        return await self.turns.run_thread(functools.partial(function, *args, **kwargs))
