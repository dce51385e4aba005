"""Reports and commits of data nodes: ticks of their vchannels, and ranges that they have written."""

from __future__ import annotations

from elanus.api.datacoord import DataNodeTick, RangeCommit
from elanus.datacoord.commits import Commits
from elanus.datacoord.compactor import Compactor
from elanus.datacoord.context import DataContext
from elanus.datacoord.datanodes import DataNodes
from elanus.datacoord.dropping import drop_segments
from elanus.datacoord.flushing import Flushing


class NodeReports:
    """Implements `elanus.api.datacoord.DataNodeCalls`."""

    def __init__(
        self,
        context: DataContext,
        datanodes: DataNodes,
        flushing: Flushing,
        commits: Commits,
        compactor: Compactor,
    ) -> None:
        self._state = context.state
        self._allocator = context.allocator
        self._attempts = context.attempts
        self._lock = context.lock
        self._changes = context.changes
        self._context = context
        self._datanodes = datanodes
        self._flushing = flushing
        self._commits = commits
        self._compactor = compactor

    async def report_ticks(self, epoch: int, ticks: tuple[DataNodeTick, ...]) -> tuple[str, ...]:
        async with self._lock:
            node = self._datanodes.of_epoch(epoch)
            reported = self._datanodes.take(node, ticks)
            for tick in reported.values():
                self._allocator.show_rows(tick.vchannel, tick.segment_rows)
            await self._flushing.seal_by_policy(reported)
            if empty := self._flushing.empty(reported):
                await drop_segments(self._context, empty)
                for collection_id in {s.collection_id for s in empty}:
                    self._changes.happened(collection_id)
            orders = await self._flushing.orders(reported)
            awaited = self._datanodes.awaited(node, ticks)
        await self._datanodes.order(node, orders)
        return awaited

    async def open_attempts(self, epoch: int, count: int) -> int:
        async with self._lock:
            return await self._attempts.open(count, self._datanodes.of_epoch(epoch).epoch)

    async def close_attempts(self, attempts: tuple[int, ...]) -> None:
        for number in attempts:
            self._attempts.close(number)

    async def commit_range(self, commit: RangeCommit) -> None:
        try:
            await self._commits.commit(commit)
        finally:
            self._attempts.close(commit.attempt)
            vchannel = self._state.vchannel(commit.vchannel)
            if commit.segments or commit.flushed or commit.delta is not None:
                # Not for a checkpoint alone, as on idle vchannels: it adds nothing to index or to serve.
                # also when this call was cancelled: it may have committed all the same
                self._changes.happened(None if vchannel is None else vchannel.collection_id)
            if vchannel is not None and (commit.flushed or commit.delta is not None):
                self._compactor.flushed(vchannel.collection_id)
