"""The calls of datacoord that concern compaction: who asks for one, who carries it out."""

from __future__ import annotations

import asyncio

import structlog

from elanus.core.change import Changes
from elanus.core.compaction import CompactionPlan, fold_bound
from elanus.core.ids import CollectionID
from elanus.core.timestamps import MAX_TIMESTAMP
from elanus.datacoord.compactor import Compactor
from elanus.datacoord.datanodes import DataNodes
from elanus.datacoord.flushing import Flushing
from elanus.datacoord.state import DataState
from elanus.rpc.datacoord import CompactionCommit
from elanus.rpc.rootcoord import RootCoordApi

_LOOK_S = 0.05
_LOOKS_MAX = 200
_log = structlog.get_logger("datacoord")


class CompactionCalls:
    """A part of `elanus.datacoord.coord.DataCoord`, which sets what is declared here."""

    _state: DataState
    _compactor: Compactor
    _flushing: Flushing
    _rootcoord: RootCoordApi
    _lock: asyncio.Lock
    _changes: Changes
    _datanodes: DataNodes

    async def compact(self, collection_id: CollectionID) -> int:
        await self._bring_deletes(collection_id)
        return await self._compactor.compact(collection_id)

    async def _bring_deletes(self, collection_id: CollectionID) -> None:
        """Into binlogs, as far as the compaction may fold them in: what lies in the log alone it cannot.

        Where the pipeline does not do it in time, the compaction is planned without them.
        """
        now = await self._rootcoord.alloc_timestamp(1)
        bound = fold_bound(now, self._compactor.retention_s, MAX_TIMESTAMP)
        vchannels = [v.vchannel for v in self._state.vchannels_of(collection_id)]
        syncs = self._flushing.syncs
        syncs.want(vchannels, bound, "compaction call")
        for _ in range(_LOOKS_MAX):
            if not syncs.is_waiting(vchannels):
                return
            await asyncio.sleep(_LOOK_S)
        _log.warning("compaction without the latest deletes", collection=collection_id)

    async def compaction_plans(self, trigger_id: int) -> tuple[CompactionPlan, ...]:
        return tuple(plan for plan in self._state.plans() if plan.trigger_id == trigger_id)

    async def commit_compaction(self, commit: CompactionCommit) -> None:
        try:
            async with self._lock:
                self._datanodes.of_epoch(commit.epoch)
                await self._compactor.commit(commit)
        finally:
            self._changes.happened()

    async def compaction_failed(self, epoch: int, plan_id: int, reason: str) -> None:
        async with self._lock:
            self._datanodes.of_epoch(epoch)
            await self._compactor.job_failed(plan_id, reason)
