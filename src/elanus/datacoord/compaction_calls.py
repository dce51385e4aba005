"""The calls of datacoord that concern compaction: who asks for one, who carries it out."""

from __future__ import annotations

import asyncio

from elanus.core.change import Changes
from elanus.core.compaction import CompactionPlan
from elanus.core.ids import CollectionID
from elanus.datacoord.compactor import Compactor
from elanus.datacoord.state import DataState
from elanus.rpc.datacoord import CompactionCommit


class CompactionCalls:
    """A part of `elanus.datacoord.coord.DataCoord`, which sets what is declared here."""

    _state: DataState
    _compactor: Compactor
    _lock: asyncio.Lock
    _changes: Changes

    def _check_epoch(self, epoch: int) -> None:
        """Raises `CommitRefused` for an epoch that is not in force."""
        raise NotImplementedError

    async def compact(self, collection_id: CollectionID) -> int:
        return await self._compactor.compact(collection_id)

    async def compaction_plans(self, trigger_id: int) -> tuple[CompactionPlan, ...]:
        return tuple(plan for plan in self._state.plans() if plan.trigger_id == trigger_id)

    async def commit_compaction(self, commit: CompactionCommit) -> None:
        try:
            async with self._lock:
                self._check_epoch(commit.epoch)
                await self._compactor.commit(commit)
        finally:
            self._changes.happened()

    async def compaction_failed(self, epoch: int, plan_id: int, reason: str) -> None:
        async with self._lock:
            self._check_epoch(epoch)
            await self._compactor.failed(plan_id, reason)
