"""Running compactions: datacoord orders plans from data nodes, and commits them or gives them up.

A plan is persisted before it is ordered and again when it has ended, so a restarted coordinator, or a data
node that registers again, finds what is still to be done. An attempt ends with its data node's registration.
Any node may carry out any plan: the node with the fewest orders gets the next one
(`elanus.datacoord.compaction_orders`). The decisions are made in `elanus.core.compaction`.

One commit exchanges the inputs for the outputs (`elanus.datacoord.segment_merges`,
`elanus.datacoord.delta_merges`). It is refused when an input has changed since the plan was
made, when the data node's registration is over, and when it comes after the deadline; its files then belong
to no manifest. Deletes that arrived meanwhile are in delta logs that the output has not folded in, and still
apply to it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from elanus.api.datacoord import CompactionCommit
from elanus.api.datanode import CompactionOrder
from elanus.core.compaction import CompactionPlan, CompactionState, blamed
from elanus.core.errors import CommitRefused, ElanusError
from elanus.core.ids import CollectionID, PartitionID
from elanus.datacoord.compaction_orders import CompactionOrders, GivenOrder
from elanus.datacoord.context import DataContext
from elanus.datacoord.datanodes import DataNodes, LiveNode
from elanus.datacoord.dead_rows import DeadRows
from elanus.datacoord.delta_merges import DeltaMerges
from elanus.datacoord.planner import Planner, PlanPolicy
from elanus.datacoord.planning_schedule import PlanningSchedule
from elanus.datacoord.segment_merges import SegmentMerges

_RETRY_PAUSE_S = 1.0
_log = structlog.get_logger("datacoord")


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """``automatic``: whether compactions are planned without a client's request. ``interval_s``: how often
    all segments are examined, in addition to those of a collection after its flushes. ``timeout_s``: how
    long a plan may take from its order to its commit, ``clustering_timeout_s``: one by a clustering key,
    which rewrites a whole partition. ``orders_max``: how many orders a data node has at a
    time at most, 0: as many as it has room for."""

    automatic: bool
    plan: PlanPolicy
    interval_s: float
    timeout_s: float
    orders_max: int
    clustering_timeout_s: float = 7200.0

    def timeout_of(self, plan: CompactionPlan) -> float:
        """Return how long the plan may take. (s)"""
        return self.timeout_s if plan.clustering is None else self.clustering_timeout_s


class Compactor:
    """Orders, commits and gives up compaction plans. Methods that say so are called under the role's lock."""

    def __init__(
        self, context: DataContext, nodes: DataNodes, dead_rows: DeadRows, policy: CompactionPolicy
    ) -> None:
        self._state = context.state
        self._attempts = context.attempts
        self._rootcoord = context.rootcoord
        self._clock = context.clock
        self._lock = context.lock
        self._nodes = nodes
        self._segment_merges = SegmentMerges(context)
        self._delta_merges = DeltaMerges(context)
        self._planner = Planner(context, dead_rows, self._delta_merges, policy.plan)
        interval_s = policy.interval_s if policy.automatic else None
        self._schedule = PlanningSchedule(self._planner, context.rootcoord, context.clock, interval_s)
        self._policy = policy
        self._orders = CompactionOrders(context.clock, policy.orders_max)
        self._unwanted: list[int] = []
        self._wake = asyncio.Event()

    @property
    def retention_s(self) -> float:
        """How far back in time reads may go; deleted rows are kept as long."""
        return self._policy.plan.retention_s

    # lifecycle

    def flushed(self, collection_id: CollectionID) -> None:
        """Note that segments were flushed: the collection is examined soon."""
        self._schedule.changed(collection_id)
        self._wake.set()

    def node_registered(self) -> None:
        """Note that there is one more data node that takes orders."""
        self._wake.set()

    def node_ended(self, epoch: int) -> None:
        """Forget the orders of a registration that has ended: they end with it."""
        self._orders.node_ended(epoch)
        self._wake.set()

    async def run(self) -> None:
        """Plan, order and time out compactions until cancelled."""
        while True:
            self._wake.clear()
            try:
                await self._give_up_late()
                await self._schedule.plan()
                await self._call_off()
                await self._forget_lost()
                await self._order()
            except ElanusError as error:
                _log.info("compaction delayed", error=error.message)
                await self._try_again()
            except Exception:  # noqa: BLE001 - the next round may succeed; without rounds nothing is compacted
                _log.exception("compaction failed; trying again")
                await self._try_again()
            await self._rest()

    async def _try_again(self) -> None:
        await asyncio.sleep(_RETRY_PAUSE_S)
        self._wake.set()

    async def _rest(self) -> None:
        """Wait until there may be something to do."""
        moments_s = self._orders.due_s()
        if self._schedule.due_s is not None:
            moments_s.append(self._schedule.due_s)
        pause_s = max(0.0, min(moments_s) - self._clock.monotonic_s()) if moments_s else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._wake.wait()

    async def compact(
        self, collection_id: CollectionID, target_bytes: int | None, *, by_key: bool = False
    ) -> int:
        """Plan the compaction that a client has requested, and return the plans' trigger id. Raises
        `CollectionNotFound`."""
        collection = await self._rootcoord.collection_by_id(collection_id)
        trigger_id = await self._planner.plan(
            [collection], force=True, target_bytes=target_bytes, by_key=by_key
        )
        if not self._policy.automatic:
            self._planner.forget_others()  # otherwise, each look at all segments does so
        self._wake.set()
        return trigger_id

    # orders

    async def _order(self) -> None:
        for plan in self._state.planned():
            if self._orders.get(plan.plan_id) is None:
                nodes = self._nodes.by_load(self._orders.busy(), plan.vchannel)
                nodes = self._orders.with_room(nodes)
                if not nodes:
                    return  # there may be thousands of plans that wait
                await self._order_from_one_of(nodes, plan)

    async def _order_from_one_of(self, nodes: Sequence[LiveNode], plan: CompactionPlan) -> None:
        """Order the plan from the first node that accepts it. If none does, raises the last one's error."""
        failure: ElanusError | None = None
        for node in nodes:
            try:
                await self._order_from(node, plan)
            except ElanusError as error:
                _log.info("compaction not ordered", node=node.node_id, error=error.message)
                failure = error
            else:
                return
        if failure is not None:
            raise failure

    async def _order_from(self, node: LiveNode, plan: CompactionPlan) -> None:
        attempt = await self._attempts.open(1, node.epoch)
        deadline_s = self._clock.monotonic_s() + self._policy.timeout_of(plan)
        self._orders.add(GivenOrder(plan.plan_id, node, attempt, deadline_s))
        try:
            self._nodes.of_epoch(node.epoch)  # it may have ended while its attempt was numbered
            order = await self._order_of(plan, attempt)
            if order is not None:
                self._orders.answered(node, await node.ports.orders.compact(node.epoch, order))
        except BaseException:
            self._close(plan.plan_id)
            raise

    async def _order_of(self, plan: CompactionPlan, attempt: int) -> CompactionOrder | None:
        """Return the order, or None for a plan that is stale; it is then marked as failed."""
        order = await self._work_of(plan).order(plan, attempt)
        if isinstance(order, CompactionOrder):
            return order
        async with self._lock:
            await self.failed(plan.plan_id, order)
        return None

    def _work_of(self, plan: CompactionPlan) -> SegmentMerges | DeltaMerges:
        return self._delta_merges if plan.deltas else self._segment_merges

    # results

    async def commit(self, commit: CompactionCommit) -> None:
        """Commit all or nothing. Raises `CommitRefused`, and whatever storing raises."""
        plan = self._running(commit)
        if wrong := await self._work_of(plan).commit(commit, self._running, self._ended):
            async with self._lock:
                await self.failed(plan.plan_id, wrong)
            raise CommitRefused(f"compaction {plan.plan_id}: {wrong}")
        # The output may complete a set of small segments, and delta logs may be superseded.
        self.flushed(plan.collection_id)

    def _running(self, commit: CompactionCommit) -> CompactionPlan:
        """Return the plan. Raises `CommitRefused` unless the commit is of the plan's attempt in force."""
        self._nodes.of_epoch(commit.epoch)
        plan = self._state.plan(commit.plan_id)
        if plan is None or plan.state is not CompactionState.PLANNED:
            state = "not known" if plan is None else f"{plan.state.value} already"
            raise CommitRefused(f"compaction {commit.plan_id} is {state}")
        order = self._orders.get(commit.plan_id)
        if order is None or order.attempt != commit.attempt:
            raise CommitRefused(f"attempt {commit.attempt} of compaction {commit.plan_id} was given up")
        if self._clock.monotonic_s() >= order.deadline_s:
            timeout_s = self._policy.timeout_of(plan)
            raise CommitRefused(
                f"compaction {commit.plan_id} came too late: it took longer than {timeout_s:g} s"
            )
        self._attempts.check(commit.attempt)
        return plan

    async def job_failed(self, plan_id: int, reason: str) -> None:
        """Record that the data node could not carry out the plan. Called under the lock."""
        plan = self._state.plan(plan_id)
        if plan is not None:
            self._planner.leave_alone(blamed(plan.inputs, reason))
        await self.failed(plan_id, reason)

    async def failed(self, plan_id: int, reason: str) -> None:
        """Mark the plan as failed. Called under the lock."""
        plan = self._state.plan(plan_id)
        if plan is not None and plan.state is CompactionState.PLANNED:
            _log.error("compaction failed", plan=plan_id, reason=reason)
            await self._state.put(plans=[replace(plan, state=CompactionState.FAILED, reason=reason)])
            self._ended(plan_id)

    def _ended(self, plan_id: int) -> None:
        self._close(plan_id)
        self._wake.set()

    def _close(self, plan_id: int) -> GivenOrder | None:
        """Forget the plan's order, close its attempt, and return the order, if there was one."""
        order = self._orders.pop(plan_id)
        if order is not None:
            self._attempts.close(order.attempt)
        return order

    async def cancel(self, collection_id: CollectionID, partition_id: PartitionID | None) -> None:
        """Cancel the plans of a collection or partition that is being dropped. Called under the lock."""
        given_up = [
            replace(plan, state=CompactionState.CANCELLED, reason="dropped")
            for plan in self._state.planned()
            if plan.collection_id == collection_id and partition_id in (None, plan.partition_id)
        ]
        await self._state.put(plans=given_up)
        self._unwanted += [plan.plan_id for plan in given_up]
        self._wake.set()

    async def _give_up_late(self) -> None:
        late = self._orders.late()
        if not late:
            return
        async with self._lock:
            plans = [p for p in self._state.planned() if p.plan_id in late]
            reasons = (f"not committed within {self._policy.timeout_of(p):g} s" for p in plans)
            timed_out = CompactionState.TIMED_OUT
            await self._state.put(
                plans=[replace(p, state=timed_out, reason=r) for p, r in zip(plans, reasons, strict=True)]
            )
        for plan in plans:
            _log.warning("compaction timed out", plan=plan.plan_id)
        self._unwanted += late

    async def _forget_lost(self) -> None:
        """Give up the attempts that their data nodes do not have any more: their plans are ordered again."""
        for lost in await self._orders.lost():
            async with self._lock:  # a commit of the attempt is either complete or refused from now on
                if self._orders.get(lost.plan_id) is lost:
                    _log.warning(
                        "compaction lost by its data node", plan=lost.plan_id, node=lost.node.node_id
                    )
                    self._close(lost.plan_id)

    async def _call_off(self) -> None:
        """Cancel work on data nodes that can no longer be committed."""
        unwanted, self._unwanted = self._unwanted, []
        nodes: dict[int, LiveNode] = {}
        ordered: dict[int, list[int]] = defaultdict(list)
        for plan_id in unwanted:
            order = self._close(plan_id)
            if order is not None:
                nodes[order.node.epoch] = order.node
                ordered[order.node.epoch].append(plan_id)
        for epoch, plan_ids in ordered.items():
            try:
                await nodes[epoch].ports.orders.cancel_compactions(epoch, tuple(plan_ids))
            except ElanusError as error:
                _log.info("data node not reached; its compactions will be refused", error=error.message)
