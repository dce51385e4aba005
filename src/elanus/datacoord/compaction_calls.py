"""The calls of datacoord that concern compaction: requests by clients, and results from data nodes."""

from __future__ import annotations

import asyncio

import structlog

from elanus.api.datacoord import CompactionCommit
from elanus.core.compaction import CompactionPlan, check_target, fold_bound
from elanus.core.ids import CollectionID
from elanus.core.timestamps import MAX_TIMESTAMP
from elanus.datacoord.compactor import Compactor
from elanus.datacoord.context import DataContext
from elanus.datacoord.datanodes import DataNodes
from elanus.datacoord.flushing import Flushing

_LOOK_S = 0.05
_LOOKS_MAX = 200
_log = structlog.get_logger("datacoord")


class Compactions:
    """Implements `elanus.api.datacoord.CompactionCalls`."""

    def __init__(
        self, context: DataContext, datanodes: DataNodes, flushing: Flushing, compactor: Compactor
    ) -> None:
        self._state = context.state
        self._rootcoord = context.rootcoord
        self._allocator = context.allocator
        self._lock = context.lock
        self._changes = context.changes
        self._datanodes = datanodes
        self._flushing = flushing
        self._compactor = compactor

    async def compact(
        self, collection_id: CollectionID, target_bytes: int | None = None, by_key: bool = False
    ) -> int:
        if target_bytes is not None and not by_key:
            check_target(target_bytes, self._allocator.segment_bytes_max)
        await self._bring_deletes(collection_id)
        return await self._compactor.compact(collection_id, target_bytes, by_key=by_key)

    async def _bring_deletes(self, collection_id: CollectionID) -> None:
        """Have the pipeline write deletes to binlogs, up to the bound that the compaction may fold in: it
        cannot fold in deletes that are only in the log.

        If the pipeline does not do so in time, the compaction is planned without them.
        """
        now = await self._rootcoord.alloc_timestamp(1)
        bound = fold_bound(now, self._compactor.retention_s, MAX_TIMESTAMP)
        vchannels = [v.vchannel for v in self._state.vchannels_of(collection_id)]
        forced = self._flushing.forced
        forced.want(vchannels, bound, "compaction call")
        for _ in range(_LOOKS_MAX):
            if not forced.is_waiting(vchannels):
                return
            await asyncio.sleep(_LOOK_S)
        _log.warning("compaction planned without the latest deletes", collection=collection_id)

    async def compaction_plans(self, trigger_id: int) -> tuple[CompactionPlan, ...]:
        return tuple(plan for plan in self._state.plans() if plan.trigger_id == trigger_id)

    async def compactions_of(self, collection_id: CollectionID) -> tuple[CompactionPlan, ...]:
        return tuple(plan for plan in self._state.plans() if plan.collection_id == collection_id)

    async def commit_compaction(self, commit: CompactionCommit) -> None:
        plan = self._state.plan(commit.plan_id)
        try:
            await self._compactor.commit(commit)
        finally:
            if plan is not None:
                self._changes.happened(plan.collection_id)

    async def compaction_failed(self, epoch: int, plan_id: int, reason: str) -> None:
        async with self._lock:
            self._datanodes.of_epoch(epoch)
            await self._compactor.job_failed(plan_id, reason)
