"""Making compaction plans: facts are gathered and plans chosen without the lock, and persisted under it.

Under the lock, the plans whose inputs have changed meanwhile are left out.

The same facts identify the delta logs that are no longer needed; these are removed from their vchannel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace

import structlog

from elanus.core.attempts import stamped
from elanus.core.catalog import Collection
from elanus.core.clustering import clustering_of, segments_max
from elanus.core.compaction import (
    Candidate,
    CompactionPlan,
    CompactionState,
    CompactionThresholds,
    choose,
    choose_clusterings,
    expire_until,
    fold_bound,
    fold_until,
    is_candidate,
)
from elanus.core.delta_merging import choose_deltas
from elanus.core.errors import InvalidParameter
from elanus.core.ids import NO_SEGMENT, FieldID, SegmentID
from elanus.core.imports import ImportState
from elanus.core.pins import feed_start
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.time_to_live import TTL_PROPERTY
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.datacoord.attempts import OWN
from elanus.datacoord.compaction_facts import CompactionFacts, FactGatherer
from elanus.datacoord.context import DataContext
from elanus.datacoord.dead_rows import DeadRows
from elanus.datacoord.delta_merges import DeltaMerges
from elanus.datacoord.vchannel_table import Vchannel
from elanus.datacoord.write_commits import served_until
from elanus.storage.port import CorruptObject, ObjectMissing

_ENDED_KEPT = 1000
_DAMAGED_REST_S = 600.0
_COLLECTIONS_A_TURN = 256
"""So many are looked at before others run: unchanged ones take a few microseconds each."""
_log = structlog.get_logger("datacoord")


@dataclass(frozen=True, slots=True)
class PlanPolicy:
    """``retention_s``: how far back in time reads may go; ``plans_max``: how many plans may be unfinished at
    a time when one is made that no client has requested."""

    thresholds: CompactionThresholds
    retention_s: float
    plans_max: int


@dataclass(frozen=True, slots=True)
class _Request:
    """The arguments of `Planner.plan`, and the id of the plans made together."""

    trigger_id: int
    force: bool
    target_bytes: int | None
    by_key: bool


class Planner:
    """Decides and persists compaction plans."""

    def __init__(
        self, context: DataContext, dead_rows: DeadRows, delta_merges: DeltaMerges, policy: PlanPolicy
    ) -> None:
        self._delta_merges = delta_merges
        self._state = context.state
        self._moments = context.moments
        self._manifests = context.manifests
        self._allocator = context.allocator
        self._attempts = context.attempts
        self._rootcoord = context.rootcoord
        self._clock = context.clock
        self._lock = context.lock
        self._gatherer = FactGatherer(context.state, context.manifests, dead_rows, policy.thresholds)
        self._policy = policy
        self._planning = asyncio.Lock()
        self.is_full = False
        """Whether the last plans left out some for which there was no room."""
        self._rests: dict[SegmentID, float] = {}
        """Until when, by the monotonic clock, these segments are compacted only on request."""
        self._settled: dict[str, int] = {}
        """The vchannels in which only a change of a segment can make a compaction worthwhile, each with the
        latest change that was examined."""

    def leave_alone(self, segments: Iterable[SegmentID]) -> None:
        """Exclude for a while segments whose files a job could not read, so that others are compacted."""
        self._rests |= dict.fromkeys(segments, self._clock.monotonic_s() + _DAMAGED_REST_S)

    async def plan(
        self,
        collections: Sequence[Collection],
        *,
        force: bool,
        target_bytes: int | None = None,
        by_key: bool = False,
    ) -> int:
        """Plan the compactions that are worthwhile, or with ``force`` all that gain anything, and return the
        plans' trigger id.

        ``target_bytes``: the size up to which segments are merged, within the maximum (None: up to the
        maximum, those below half of it). ``by_key``: rewrite segments by the clustering key, where there is
        one.
        """
        async with self._planning:
            self.is_full = False
            trigger_id = await self._rootcoord.alloc_ids(1)
            now = await self._rootcoord.alloc_timestamp(1)
            for number, collection in enumerate(collections, 1):
                if number % _COLLECTIONS_A_TURN == 0:
                    await asyncio.sleep(0)
                for vchannel in self._state.vchannels_of(collection.collection_id):
                    if vchannel.dropping or (not force and self._is_settled(collection, vchannel)):
                        continue
                    request = _Request(trigger_id, force, target_bytes, by_key)
                    await self._plan_vchannel(collection, vchannel, now, request)
                    await asyncio.sleep(0)  # what it looks at may all be in memory: let others run
            await self._forget_ended()
            return trigger_id

    def _is_settled(self, collection: Collection, vchannel: Vchannel) -> bool:
        """Whether nothing can have become worthwhile since the vchannel was examined.

        Time alone makes rows expire, and deletes old enough to be folded in.
        """
        expires = TTL_PROPERTY in collection.properties or collection.truncated != NO_TIMESTAMP
        is_timeless = not vchannel.deltas and not expires and not vchannel.schema.ttl_field
        return is_timeless and self._settled.get(vchannel.vchannel) == self._state.last_change(
            vchannel.vchannel
        )

    def _settle(self, name: str, change: int, segments: Iterable[SegmentID]) -> None:
        """Note that a vchannel has been examined up to this change, and that nothing was worthwhile."""
        left_out = {*self._taken(), *self._resting()}
        if left_out.isdisjoint(segments):
            self._settled[name] = change

    def forget_others(self) -> None:
        """Forget what is known about segments that no longer exist. Costs a look at all that are known."""
        self._gatherer.forget_others()
        self._settled = {name: n for name, n in self._settled.items() if self._state.vchannel(name)}

    async def _plan_vchannel(
        self,
        collection: Collection,
        vchannel: Vchannel,
        now: Timestamp,
        request: _Request,
    ) -> None:
        if self._state.is_importing(vchannel.collection_id):
            return  # its deletes may have an earlier timestamp than ``now``, and are in no list yet
        served = served_until(self._state.imports(), vchannel.collection_id)
        bound = min(
            fold_bound(now, self._policy.retention_s, vchannel.checkpoint.ts),
            served,
            self._moments.earliest(),
            feed_start(self._state.pins(), vchannel.collection_id, self._clock.wall_ms()),
        )
        change = self._state.last_change(vchannel.vchannel)
        try:
            expired = expire_until(collection.properties, now, self._policy.retention_s, collection.truncated)
            taken = {*self._taken(), *(() if request.force else self._resting())}
            facts = await self._gatherer.gather(
                vchannel, bound, expired, frozenset(taken), force=request.force
            )
        except (ObjectMissing, CorruptObject, InvalidParameter) as error:
            _log.error("vchannel not compacted", vchannel=vchannel.vchannel, error=str(error))
            return
        await self._forget_deltas(vchannel.vchannel, facts, bound)
        await asyncio.sleep(0)  # to look at all segments and to choose among them takes long enough
        if not await self._plan_segments(vchannel, facts, bound, expired, request):
            self._settle(vchannel.vchannel, change, facts.segments)
        await self._plan_deltas(vchannel.vchannel, bound, served)

    async def _plan_segments(
        self,
        vchannel: Vchannel,
        facts: CompactionFacts,
        bound: Timestamp,
        expired: Timestamp,
        request: _Request,
    ) -> bool:
        """Plan compactions of segments; return whether any was worthwhile."""
        target, key = request.target_bytes, vchannel.schema.clustering_key
        rows = None if target is None else target // vchannel.schema.row_bytes_estimate
        rows_max = self._allocator.max_rows(vchannel.schema)
        cluster_rows = rows_max if rows is None else max(1, min(rows, rows_max))
        chosen: list[tuple[SegmentInfo, ...]] = []
        candidates: Sequence[Candidate] = facts.candidates
        if request.by_key and key is not None:
            chosen, candidates = choose_clusterings(candidates, cluster_rows)
        clusterings = len(chosen)
        chosen += choose(candidates, self._policy.thresholds, rows_max, force=request.force, rows_target=rows)
        room = self._room(request)
        self.is_full = self.is_full or (room is not None and len(chosen) > room)
        proposed = []
        for number, inputs in enumerate(chosen[:room]):
            plan = await self._new_plan(inputs, vchannel, bound, expired, request.trigger_id)
            if number < clusterings and key is not None:
                plan = await self._by_key(plan, inputs, key.field_id, cluster_rows)
            proposed.append((inputs, plan))
        if not proposed:
            return bool(chosen)
        async with self._lock:
            taken = set(self._taken())
            plans = [plan for inputs, plan in proposed if self._are_unchanged(inputs, taken)]
            plans = plans[: self._room(request)]
            await self._state.put(plans=plans)
        for plan in plans:
            _log.info("compaction planned", plan=plan.plan_id, inputs=len(plan.inputs), forced=request.force)
        return True

    def _room(self, request: _Request) -> int | None:
        """Return how many more plans may be made; None: as many as there are. A client's request is carried
        out as a whole: nobody would make the plans that are left out."""
        return None if request.force else max(0, self._policy.plans_max - len(self._state.planned()))

    async def _plan_deltas(self, name: str, bound: Timestamp, served: Timestamp) -> None:
        """Plan to merge small delta logs, unless a compaction is about to read them.

        ``served``: see `elanus.datacoord.write_commits.served_until`.
        """
        vchannel = self._state.vchannel(name)
        if vchannel is None or vchannel.dropping or self._delta_merges.is_planned(name):
            return
        logs = await self._manifests.of_vchannel(vchannel)
        count_min = self._policy.thresholds.merge_delta_logs_min
        served_logs = [log for log in logs if log.file.ts_max <= served]
        chosen = choose_deltas(served_logs, bound, self._policy.retention_s, count_min)
        if not chosen:
            return
        if len(self._state.planned()) >= self._policy.plans_max:
            self.is_full = True
            return
        plan = self._delta_merges.plan(await self._rootcoord.alloc_ids(1), vchannel, chosen)
        async with self._lock:
            current = self._state.vchannel(name)
            if current is None or current.dropping or self._delta_merges.is_planned(name):
                return
            await self._state.put(plans=[plan])
        _log.info("merge of delta logs planned", plan=plan.plan_id, vchannel=name, delta_logs=len(chosen))

    async def _new_plan(
        self,
        inputs: tuple[SegmentInfo, ...],
        vchannel: Vchannel,
        bound: Timestamp,
        expired: Timestamp,
        trigger_id: int,
    ) -> CompactionPlan:
        manifests = await self._manifests.of_segments(inputs)
        first_id = await self._rootcoord.alloc_ids(2)
        first = inputs[0]
        return CompactionPlan(
            plan_id=first_id,
            trigger_id=trigger_id,
            collection_id=first.collection_id,
            partition_id=first.partition_id,
            vchannel=first.vchannel,
            inputs=tuple(info.segment_id for info in inputs),
            manifests=tuple(info.manifest for info in inputs),
            output=SegmentID(first_id + 1),
            fold_until=fold_until(bound, manifests, vchannel.checkpoint.ts),
            expire_until=expired,
        )

    async def _by_key(
        self, plan: CompactionPlan, inputs: Sequence[SegmentInfo], field_id: FieldID, rows_max: int
    ) -> CompactionPlan:
        """Return the plan as one that makes clusters of the inputs' rows."""
        rows = sum(info.rows for info in inputs)
        first_id = SegmentID(await self._rootcoord.alloc_ids(segments_max(rows, rows_max)))
        clustering = clustering_of(field_id, rows, rows_max, first_id)
        return replace(plan, output=NO_SEGMENT, clustering=clustering)

    def _are_unchanged(self, inputs: Iterable[SegmentInfo], taken: Set[SegmentID]) -> bool:
        """Whether segments that were examined without the lock have not changed since."""
        for seen in inputs:
            vchannel = self._state.vchannel(seen.vchannel)
            info = self._state.segment(seen.segment_id)
            if vchannel is None or vchannel.dropping:
                return False
            if info.manifest != seen.manifest or not is_candidate(info, taken):
                return False
        return True

    def _taken(self) -> Iterable[SegmentID]:
        """Yield the segments that belong to another compaction, or to an import that is not yet served.

        Readers treat imported segments by special rules (`SegmentManifest.commit_ts`) until all segments of
        an import are served; a segment compacted from them would be like any other.
        """
        for plan in self._state.planned():
            yield from plan.inputs
        for task in self._state.imports():
            if task.state is ImportState.PERSISTED:
                yield from task.segments

    def _resting(self) -> Iterable[SegmentID]:
        now_s = self._clock.monotonic_s()
        self._rests = {segment_id: until_s for segment_id, until_s in self._rests.items() if now_s < until_s}
        return self._rests

    async def _forget_deltas(self, name: str, facts: CompactionFacts, bound: Timestamp) -> None:
        """Remove the superseded delta logs from the vchannel.

        A superseded delta log stays superseded: rows that arrive later have later timestamps than its
        deletes. Imported rows are the exception, because an import takes its timestamp before it shows its
        segments. If that happens now, or the vchannel changes meanwhile, the delta logs wait for the next
        examination.
        """
        vchannel = self._state.vchannel(name)
        if not facts.superseded or vchannel is None or not self._may_forget(vchannel, facts, bound):
            return
        logs = await self._manifests.of_vchannel(vchannel)
        kept = tuple(log for log in logs if log.file.path not in facts.superseded)
        if len(kept) == len(logs):
            return
        attempt = await self._attempts.open(1, OWN)
        try:
            written = await self._manifests.with_deltas(vchannel, kept, stamped(attempt, "deltas"))
            async with self._lock:
                current = self._state.vchannel(name)
                if (
                    current is not None
                    and current.deltas == vchannel.deltas
                    and self._may_forget(current, facts, bound)
                ):
                    await self._state.put(vchannels=[replace(current, deltas=written.deltas)])
        finally:
            self._attempts.close(attempt)

    def _may_forget(self, vchannel: Vchannel, facts: CompactionFacts, bound: Timestamp) -> bool:
        if vchannel.dropping or self._state.is_importing(vchannel.collection_id):
            return False
        return not any(
            s.created <= bound and s.segment_id not in facts.segments and s.manifest
            for s in self._state.segments_on(vchannel.vchannel)
            if s.state is not SegmentState.DROPPED
        )

    async def _forget_ended(self) -> None:
        ended = [p.plan_id for p in self._state.plans() if p.state is not CompactionState.PLANNED]
        await self._state.forget_plans(ended[: max(0, len(ended) - _ENDED_KEPT)])
