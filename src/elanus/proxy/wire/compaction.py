"""The RPCs of compaction. What a request cannot choose (segments, a clustering key, a size) is refused."""

from __future__ import annotations

from collections import Counter

from elanus.core.compaction import CompactionPlan, CompactionState
from elanus.core.errors import InvalidParameter
from elanus.proxy.api import Front
from elanus.proxy.wire.names import check_collection_name
from elanus.proxy.wire.requests import Context, database_of, rpc
from elanus.proxy.wire.stubs import Message, common_pb2, milvus_pb2

_NO_TARGET = -1
"""As the reference answers while a plan has no result."""


class Compaction:
    def __init__(self, front: Front) -> None:
        self._front = front

    @rpc("collection_name", "collectionID")
    def ManualCompaction(self, request: Message, context: Context) -> Message:
        """By name, or by id as older clients send it."""
        name = request.collection_name
        if not request.collectionID:
            check_collection_name(name)
        started = self._front.compact(database_of(request, context), name, request.collectionID)
        return milvus_pb2.ManualCompactionResponse(
            compactionID=started.compaction_id, compactionPlanCount=started.plans
        )

    @rpc("compactionID")
    def GetCompactionState(self, request: Message, context: Context) -> Message:
        plans = self._plans(request)
        counts = Counter(plan.state for plan in plans)
        return milvus_pb2.GetCompactionStateResponse(
            state=_state(plans),
            executingPlanNo=counts[CompactionState.PLANNED],
            timeoutPlanNo=counts[CompactionState.TIMED_OUT],
            completedPlanNo=counts[CompactionState.COMPLETED],
            failedPlanNo=counts[CompactionState.FAILED] + counts[CompactionState.CANCELLED],
        )

    @rpc("compactionID")
    def GetCompactionStateWithPlans(self, request: Message, context: Context) -> Message:
        plans = self._plans(request)
        return milvus_pb2.GetCompactionPlansResponse(
            state=_state(plans), mergeInfos=[_merge_info(plan) for plan in plans]
        )

    def _plans(self, request: Message) -> tuple[CompactionPlan, ...]:
        """A compaction that found nothing to do has no plans; as in the reference, nor has an unknown id."""
        if request.compactionID <= 0:
            raise InvalidParameter(
                f"compaction id {request.compactionID} does not exist: use the one that compacting answered"
            )
        return tuple(self._front.compaction_plans(request.compactionID))


def _state(plans: tuple[CompactionPlan, ...]) -> int:
    executes = any(plan.state is CompactionState.PLANNED for plan in plans)
    return int(common_pb2.Executing if executes else common_pb2.CompactionState.Value("Completed"))


def _merge_info(plan: CompactionPlan) -> Message:
    completed = plan.state is CompactionState.COMPLETED
    return milvus_pb2.CompactionMergeInfo(
        sources=plan.inputs, target=plan.output if completed and plan.output else _NO_TARGET
    )
