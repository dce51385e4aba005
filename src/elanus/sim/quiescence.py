"""Coming to rest: once faults end, everything that was begun must complete, with correct results."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from elanus.core.compaction import CompactionState
from elanus.core.consistency import ConsistencyLevel
from elanus.core.errors import ElanusError
from elanus.core.ids import CollectionID
from elanus.core.invariants import InvariantBroken
from elanus.core.names import DEFAULT_DATABASE
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.sim.client_plans import PARTLY, WIDENED
from elanus.sim.files import check_files
from elanus.sim.judge import Judge
from elanus.sim.system import System
from elanus.sim.workload import Client

TIMEOUT_S = 60.0
"""How long each step may take once there are no more faults."""
_LOOK_S = 0.2
_DONE = (SegmentState.FLUSHED, SegmentState.DROPPED)


class Rest:
    """``collections``: the names of those that the run has."""

    def __init__(self, system: System, judge: Judge, client: Client, collections: Sequence[str]) -> None:
        self._system = system
        self._collections = self._named = tuple(collections)
        self._judge = judge
        self._client = client
        self._unfinished: Sequence[SegmentInfo | str] = ()
        self._loaded: frozenset[CollectionID] = frozenset()
        """The collections that are brought to rest. An earlier request may still make a clone afterwards."""

    async def come(self) -> None:
        """Bring the system to rest and check it.

        Raises `InvariantBroken`, with `LIVE1` if something does not complete.
        """
        await self._in_time("all roles are up", self._system.all_up())
        await self._in_time("all clones are complete", self._until(self._are_cloned))
        await self._in_time("all releases are over", self._until(self._is_released))
        for name in self._collections:
            await self._in_time(f"{name} is loaded", self._client.set_up(name))
        if PARTLY in self._collections:
            await self._in_time(f"all of {PARTLY} is loaded", self._until(self._is_all_loaded))
            self._judge.loads.all_loaded()
        await self._read_all()
        for name in self._collections:
            await self._in_time(f"{name} is sealed", self._succeeding("flush", name))
        await self._in_time("all segments are flushed", self._until(self._is_flushed))
        await self._in_time("all imports are over", self._until(self._is_imported))
        await self._in_time("all compactions are over", self._until(self._is_compacted))
        await self._in_time("all segments are handed off", self._until(self._is_handed_off))
        await self._read_all()
        self._judge.check_all_kept()
        self._judge.check_upserts()
        self._judge.check_dropped_partitions()
        check_files(self._system.records, self._system.truth, self._system.store)
        self._system.garbage.check_present()
        await self._in_time("garbage is collected", self._until(self._is_tidy), "GC3")

    async def _read_all(self) -> None:
        for name in self._collections:
            for kind in ("count", "query", "search", *(("query_wide",) if name == WIDENED else ())):
                await self._in_time(f"{kind} of {name} is answered", self._succeeding(kind, name))

    async def _succeeding(self, kind: str, name: str) -> None:
        strictly = () if kind == "flush" else (ConsistencyLevel.STRONG,)
        while not await self._client.operate(kind, name, *strictly):
            await asyncio.sleep(_LOOK_S)

    async def _until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        while not await holds():
            await asyncio.sleep(_LOOK_S)

    async def _in_time(self, what: str, work: Awaitable[None], invariant: str = "LIVE1") -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await work
        except TimeoutError:
            state = f"{self._system.waiting_for()}; {self._unfinished}"
            raise InvariantBroken(invariant, f"not in {TIMEOUT_S:g} s: {what}; {state}") from None

    async def _is_flushed(self) -> bool:
        self._unfinished = [s for s in self._live_segments() if s.state not in _DONE and self._has_rows(s)]
        return not self._unfinished

    async def _is_imported(self) -> bool:
        for task_id in self._system.imports.uncommitted():
            # an import that nobody has committed is not over: half of them are committed now
            data = self._system.roles_of_clients.data
            settle = data.cancel_import if task_id % 2 else data.commit_import
            with contextlib.suppress(ElanusError):
                await settle(task_id)
        self._unfinished = self._system.imports.unfinished()
        return not self._unfinished

    async def _is_released(self) -> bool:
        return not self._system.is_under_way("release")

    async def _is_all_loaded(self) -> bool:
        coordinators = self._system.roles_of_clients
        try:
            found = await coordinators.root.describe_collection(DEFAULT_DATABASE, PARTLY)
            loads = await coordinators.query.loads(found.collection_id)
        except ElanusError:
            return False
        self._unfinished = [f"{load.percentages}" for load in loads]
        wanted = {p.partition_id for p in found.partitions}
        return bool(loads) and all(loads[0].percentages.get(p) == 100 for p in wanted)

    async def _are_cloned(self) -> bool:
        """Whether every clone in the catalog has its rows. They are read like the other collections."""
        try:
            found = await self._system.roles_of_clients.root.list_collections("")
        except ElanusError:
            return False
        clones = [c for c in found if c.origin is not None]
        self._collections = (*self._named, *(c.name for c in clones))
        self._loaded = frozenset(c.collection_id for c in found)
        self._unfinished = [c.name for c in clones if c.origin is not None and not c.origin.is_done]
        return not self._unfinished

    async def _is_compacted(self) -> bool:
        return all(p.state is not CompactionState.PLANNED for p in self._system.records.plans.values())

    def _has_rows(self, segment: SegmentInfo) -> bool:
        """Whether anything was written to the segment. One that was never written to stays open."""
        return segment.segment_id in self._system.truth.contents(segment.collection_id).segments

    def _live_segments(self) -> list[SegmentInfo]:
        live = {v.collection_id for v in self._system.records.vchannels.values() if not v.dropping}
        return [s for s in self._system.records.segments.values() if s.collection_id in live]

    async def _is_tidy(self) -> bool:
        self._unfinished = self._system.garbage.garbage(self._system.clocks["datacoord"].wall_ms())
        return not self._unfinished

    async def _is_handed_off(self) -> bool:
        """Whether every replica serves all flushed segments, on any of its nodes."""
        statuses = [await node.status() for node in self._system.query_nodes()]
        served = Counter(s.segment_id for status in statuses for s in status.segments if s.sealed)
        live = (s for s in self._live_segments() if s.collection_id in self._loaded)
        flushed = [s for s in live if s.state is SegmentState.FLUSHED]
        self._unfinished = [s for s in flushed if served[s.segment_id] < self._system.reading.replicas]
        return not self._unfinished
