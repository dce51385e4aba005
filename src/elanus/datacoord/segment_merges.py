"""Plans that make segments from others, one or several: their orders and their commits.

A commit drops the inputs and adds the outputs in one change. The outputs' manifests are written without the
role's lock; the commit is checked before, and again under it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from elanus.api.datacoord import CompactionCommit
from elanus.api.datanode import CompactionOrder
from elanus.core.attempts import stamped
from elanus.core.compaction import CompactionPlan, CompactionState
from elanus.core.ids import NO_SEGMENT, SegmentID
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.datacoord.context import DataContext
from elanus.datacoord.manifest_reader import Chosen
from elanus.datacoord.vchannel_table import Vchannel


class SegmentMerges:
    def __init__(self, context: DataContext) -> None:
        self._state = context.state
        self._manifests = context.manifests
        self._rootcoord = context.rootcoord
        self._lock = context.lock

    async def order(self, plan: CompactionPlan, attempt: int) -> CompactionOrder | str:
        """Return the order, or why its result would be wrong now."""
        chosen, contents = await self._manifests.current(lambda: self._chosen(plan))
        if not chosen.vchannels:
            return self._stale(plan)
        (vchannel,) = chosen.vchannels
        inputs, deltas = contents.of_segments(chosen.segments), contents.of_vchannel(vchannel)
        folded = min(manifest.deletes_from for manifest in inputs)
        return CompactionOrder(
            plan_id=plan.plan_id,
            attempt=attempt,
            collection_id=plan.collection_id,
            partition_id=plan.partition_id,
            vchannel=plan.vchannel,
            segment_id=plan.output,
            schema=vchannel.schema,
            inputs=inputs,
            delta_logs=tuple(
                d.file for d in deltas if d.file.ts_max > folded and d.file.ts_min <= plan.fold_until
            ),
            fold_until=plan.fold_until,
            expire_until=plan.expire_until,
            clustering=plan.clustering,
        )

    async def commit(
        self,
        commit: CompactionCommit,
        running: Callable[[CompactionCommit], CompactionPlan],
        ended: Callable[[int], None],
    ) -> str:
        """Commit all or nothing. Returns why the result would be wrong now, "" if it was committed.

        ``running`` returns the plan, and raises `CommitRefused` unless the commit is of the attempt in force;
        ``ended`` is called under the lock with the id of a plan that is completed.
        """
        plan = running(commit)
        made: list[SegmentInfo] = []
        if not _misnamed(plan, commit) and not self._stale(plan):
            made = await self._outputs(plan, self._inputs(plan), commit)
        async with self._lock:
            plan = running(commit)
            if wrong := _misnamed(plan, commit):
                return wrong
            if stale := self._stale(plan):
                return stale
            now = await self._rootcoord.alloc_timestamp(1)
            changed = [replace(s, state=SegmentState.DROPPED, dropped=now) for s in self._inputs(plan)]
            plan = _completed(plan, [info.segment_id for info in made])
            await self._state.put(segments=[*changed, *made], plans=[plan])
            ended(plan.plan_id)
            return ""

    def _chosen(self, plan: CompactionPlan) -> Chosen:
        """Return the inputs and the vchannel of a plan; nothing if it is stale."""
        vchannel = self._state.vchannel(plan.vchannel)
        return Chosen(()) if vchannel is None or self._stale(plan) else Chosen(self._inputs(plan), [vchannel])

    def _stale(self, plan: CompactionPlan) -> str:
        """Return why the plan's result would be wrong now; "" if it would be right."""
        return _stale(plan, self._inputs(plan), self._state.vchannel(plan.vchannel))

    def _inputs(self, plan: CompactionPlan) -> list[SegmentInfo]:
        found = (self._state.find_segment(segment_id) for segment_id in plan.inputs)
        return [info for info in found if info is not None]

    async def _outputs(
        self, plan: CompactionPlan, inputs: Sequence[SegmentInfo], commit: CompactionCommit
    ) -> list[SegmentInfo]:
        """Write the manifests of the segments that were made, and return their records."""
        now = await self._rootcoord.alloc_timestamp(1)
        name = stamped(commit.attempt, f"{now}")
        made = []
        for output in commit.outputs:
            if output.insert_logs:
                info = SegmentInfo(
                    output.segment_id,
                    plan.collection_id,
                    plan.partition_id,
                    plan.vchannel,
                    SegmentState.FLUSHED,
                    max_rows=max(s.max_rows for s in inputs),
                    created=now,
                    last_expire=max(s.last_expire for s in inputs),
                    sealed_at=max(s.sealed_at for s in inputs),
                    compacted_from=plan.inputs,
                    clustering=_clustering(plan, inputs),
                )
                made.append(await self._manifests.add_compacted(info, output, plan.fold_until, name))
        return made


def _clustering(plan: CompactionPlan, inputs: Sequence[SegmentInfo]) -> int:
    """Return the clustering compaction of which the outputs are clusters: a rewritten cluster stays one."""
    if plan.clustering is not None:
        return plan.plan_id
    return inputs[0].clustering if len(inputs) == 1 else 0


def _completed(plan: CompactionPlan, made: Sequence[SegmentID]) -> CompactionPlan:
    if plan.clustering is not None:
        return replace(plan, state=CompactionState.COMPLETED, outputs=tuple(made))
    return replace(plan, state=CompactionState.COMPLETED, output=plan.output if made else NO_SEGMENT)


def _misnamed(plan: CompactionPlan, commit: CompactionCommit) -> str:
    """Return which output of a commit is none that the plan may make; "" if all are."""
    ids = [output.segment_id for output in commit.outputs]
    if plan.clustering is None:
        return "" if ids == [plan.output] else f"its output is segment {plan.output}, not {ids}"
    strange = [segment_id for segment_id in ids if not plan.clustering.may_make(segment_id)]
    if strange or len(set(ids)) < len(ids):
        return f"its outputs are segments from {plan.clustering.first_id} on, each once, not {ids}"
    return ""


def _stale(plan: CompactionPlan, inputs: Sequence[SegmentInfo], vchannel: Vchannel | None) -> str:
    """Return why the plan's result would be wrong now; "" if it would be right."""
    if vchannel is None or vchannel.dropping:
        return f"vchannel {plan.vchannel} is dropped"
    if len(inputs) < len(plan.inputs):
        return "an input is gone"
    for info, manifest in zip(inputs, plan.manifests, strict=True):
        if info.state is not SegmentState.FLUSHED or info.manifest != manifest:
            return f"segment {info.segment_id} has changed since it was planned"
    return ""
