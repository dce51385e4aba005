"""Plans that merge delta logs of a vchannel: their orders and their commits.

A commit exchanges the merged delta logs for the new one, in the list that the vchannel's record names. Ranges
that are committed meanwhile extend that list. So the new list is written without the lock, and written again
if the record names another one by then, as for ranges (`elanus.datacoord.commits`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from elanus.api.datacoord import CompactionCommit
from elanus.api.datanode import CompactionOrder
from elanus.core.attempts import stamped
from elanus.core.compaction import CompactionPlan, CompactionState
from elanus.core.ids import ALL_PARTITIONS, NO_SEGMENT
from elanus.core.segments import BinlogFile, DeltaLog
from elanus.core.timestamps import NO_TIMESTAMP
from elanus.datacoord.context import DataContext
from elanus.datacoord.vchannel_table import Vchannel

_GONE = "a delta log is not needed any more"


class DeltaMerges:
    def __init__(self, context: DataContext) -> None:
        self._state = context.state
        self._manifests = context.manifests
        self._lock = context.lock
        self._count = 0

    def plan(self, plan_id: int, vchannel: Vchannel, deltas: Iterable[DeltaLog]) -> CompactionPlan:
        """Return a plan. It belongs to no client's request, so it is its own trigger."""
        return CompactionPlan(
            plan_id=plan_id,
            trigger_id=plan_id,
            collection_id=vchannel.collection_id,
            partition_id=ALL_PARTITIONS,
            vchannel=vchannel.vchannel,
            inputs=(),
            manifests=(),
            output=NO_SEGMENT,
            fold_until=NO_TIMESTAMP,
            expire_until=NO_TIMESTAMP,
            deltas=tuple(delta.file.path for delta in deltas),
        )

    def is_planned(self, vchannel: str) -> bool:
        """Whether a compaction that reads the vchannel's delta logs has not ended."""
        return any(plan.vchannel == vchannel for plan in self._state.planned())

    async def order(self, plan: CompactionPlan, attempt: int) -> CompactionOrder | str:
        """Return the order, or why its result would be wrong now."""
        vchannel = self._state.vchannel(plan.vchannel)
        if vchannel is None or vchannel.dropping:
            return f"vchannel {plan.vchannel} is dropped"
        known = {log.file.path: log.file for log in await self._manifests.of_vchannel(vchannel)}
        if not known.keys() >= set(plan.deltas):
            return _GONE
        return CompactionOrder(
            plan_id=plan.plan_id,
            attempt=attempt,
            collection_id=plan.collection_id,
            partition_id=plan.partition_id,
            vchannel=plan.vchannel,
            segment_id=NO_SEGMENT,
            schema=vchannel.schema,
            inputs=(),
            delta_logs=tuple(known[path] for path in plan.deltas),
            fold_until=plan.fold_until,
            expire_until=plan.expire_until,
            merges_deltas=True,
        )

    async def commit(
        self,
        commit: CompactionCommit,
        running: Callable[[CompactionCommit], CompactionPlan],
        ended: Callable[[int], None],
    ) -> str:
        """Commit all or nothing. Returns why the result would be wrong now, "" if it was committed.

        ``running`` and ``ended``: see `elanus.datacoord.segment_merges.SegmentMerges.commit`.
        """
        while True:
            plan = running(commit)
            vchannel = self._state.vchannel(plan.vchannel)
            if vchannel is None or vchannel.dropping:
                return f"vchannel {plan.vchannel} is dropped"
            logs = await self._manifests.of_vchannel(vchannel)
            files = [file for output in commit.outputs for file in output.insert_logs]
            if len(files) != 1:
                return f"its output is {len(files)} delta logs, not one"
            (merged,) = files
            if wrong := _difference(plan, logs, merged):
                return wrong
            self._count += 1
            name = stamped(commit.attempt, f"deltas-{self._count}")
            written = await self._manifests.with_deltas(vchannel, _exchanged(plan, logs, merged), name)
            async with self._lock:
                plan = running(commit)
                current = self._state.vchannel(plan.vchannel)
                if current is None or current.dropping or current.deltas != vchannel.deltas:
                    continue
                done = replace(plan, state=CompactionState.COMPLETED)
                await self._state.put(vchannels=[replace(current, deltas=written.deltas)], plans=[done])
                ended(plan.plan_id)
                return ""


def _difference(plan: CompactionPlan, logs: Iterable[DeltaLog], merged: BinlogFile) -> str:
    """Return what a merged delta log lacks; "" if it has the place of its inputs.

    Only some deletes of an input that is cut for a clone count: its record does not say how many.
    """
    inputs = [log.file for log in logs if log.file.path in plan.deltas]
    if len(inputs) < len(plan.deltas):
        return _GONE
    most = sum(file.rows for file in inputs)
    least = sum(file.rows for file in inputs if file.until == NO_TIMESTAMP)
    if not least <= merged.rows <= most:
        return f"the merged delta log has {merged.rows} deletes, its inputs have {most}"
    return ""


def _exchanged(plan: CompactionPlan, logs: Iterable[DeltaLog], merged: BinlogFile) -> tuple[DeltaLog, ...]:
    """Return the list with the merged delta log in the place of the first of its inputs."""
    kept: dict[str, DeltaLog] = {}
    for log in logs:
        if log.file.path in plan.deltas:
            kept.setdefault(merged.path, DeltaLog(plan.vchannel, merged))
        else:
            kept[log.file.path] = log
    return tuple(kept.values())
