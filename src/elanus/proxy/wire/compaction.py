"""The RPCs of compaction. Choices that are not supported (segments, a channel) are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from elanus.core.compaction import CompactionPlan, CompactionState
from elanus.core.errors import InvalidParameter
from elanus.core.names import check_collection_name
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.permission import NO_PRIVILEGE
from elanus.proxy.api.compaction import CompactionVerbs
from elanus.proxy.wire.requests import database_of, rpc
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2

_MB = 1024 * 1024
_TARGET_MAX_BYTES = 2**62
"""Far beyond any segment: clients send the largest number possible to merge as much as possible."""
_NO_TARGET = -1
"""The reference's answer while a plan has no result."""
_TASK_STATES = {
    CompactionState.PLANNED: common_pb2.CompactionTaskStateExecuting,
    CompactionState.COMPLETED: common_pb2.CompactionTaskStateCompleted,
    CompactionState.FAILED: common_pb2.CompactionTaskStateFailed,
    CompactionState.TIMED_OUT: common_pb2.CompactionTaskStateTimeout,
    CompactionState.CANCELLED: common_pb2.CompactionTaskStateCleaned,
}


class Compaction:
    def __init__(self, verbs: CompactionVerbs) -> None:
        self._verbs = verbs

    @rpc(
        "collection_name",
        "collectionID",
        "target_size",
        "majorCompaction",
        "l0Compaction",
        privilege="PrivilegeCompaction",
        on="collection_name",
    )
    def ManualCompaction(
        self, request: milvus_pb2.ManualCompactionRequest, caller: Caller
    ) -> milvus_pb2.ManualCompactionResponse:
        """Start a compaction by collection name, or by id as older clients send it.

        A major compaction is one by the collection's clustering key. Any other merges segments and folds
        deletes in, and so does a major one where there is no such key, or too few rows for two segments.
        """
        name = request.collection_name
        if not request.collectionID:
            check_collection_name(name)
        target = _target_bytes(request.target_size)
        started = self._verbs.compact(
            database_of(request, caller), name, request.collectionID, target, request.majorCompaction
        )
        return milvus_pb2.ManualCompactionResponse(
            compactionID=started.compaction_id, compactionPlanCount=started.plans
        )

    @rpc("compactionID", privilege=NO_PRIVILEGE)
    def GetCompactionState(
        self, request: milvus_pb2.GetCompactionStateRequest, caller: Caller
    ) -> milvus_pb2.GetCompactionStateResponse:
        plans = self._plans(request)
        counts = Counter(plan.state for plan in plans)
        return milvus_pb2.GetCompactionStateResponse(
            state=_state(plans),
            executingPlanNo=counts[CompactionState.PLANNED],
            timeoutPlanNo=counts[CompactionState.TIMED_OUT],
            completedPlanNo=counts[CompactionState.COMPLETED],
            failedPlanNo=counts[CompactionState.FAILED] + counts[CompactionState.CANCELLED],
        )

    @rpc(
        "compactionID",
        "collection_name",
        privilege="PrivilegeGetStatistics",
        on="collection_name",
        if_named=True,
    )
    def GetCompactionStateWithPlans(
        self, request: milvus_pb2.GetCompactionPlansRequest, caller: Caller
    ) -> milvus_pb2.GetCompactionPlansResponse:
        """Return the plans of one compaction or, with a name, all that are remembered of the collection."""
        if request.collection_name and not request.compactionID:
            name = check_collection_name(request.collection_name)
            plans = tuple(self._verbs.compactions_of(database_of(request, caller), name))
            infos = [_task(plan) for plan in plans]
        else:
            plans = self._plans(request)
            infos = [info for plan in plans for info in _merge_infos(plan)]
        return milvus_pb2.GetCompactionPlansResponse(state=_state(plans), mergeInfos=infos)

    def _plans(
        self, request: milvus_pb2.GetCompactionStateRequest | milvus_pb2.GetCompactionPlansRequest
    ) -> tuple[CompactionPlan, ...]:
        """Return the plans.

        There are none if the compaction found nothing to do or, as in the reference, if the id is unknown.
        """
        if request.compactionID <= 0:
            raise InvalidParameter(
                f"compaction id {request.compactionID} does not exist: use the one that compacting answered"
            )
        return tuple(self._verbs.compaction_plans(request.compactionID))


def _target_bytes(size_mb: int) -> int | None:
    """Return the target size that a client gives in megabytes; None for 0. Raises `InvalidParameter`."""
    if size_mb < 0:
        raise InvalidParameter(f"target_size [{size_mb}] is invalid, should be a positive number of MB")
    return min(size_mb * _MB, _TARGET_MAX_BYTES) if size_mb else None


def _state(plans: tuple[CompactionPlan, ...]) -> common_pb2.CompactionState.ValueType:
    executes = any(plan.state is CompactionState.PLANNED for plan in plans)
    return common_pb2.Executing if executes else common_pb2.CompactionState.Value("Completed")


def _merge_infos(plan: CompactionPlan) -> list[milvus_pb2.CompactionMergeInfo]:
    """Return what became of the plan's inputs: one entry for each segment that was made of them."""
    made = _made(plan)
    return [_merge_info(plan, made, target) for target in made or (_NO_TARGET,)]


def _task(plan: CompactionPlan) -> milvus_pb2.CompactionMergeInfo:
    made = _made(plan)
    return _merge_info(plan, made, made[0] if made else _NO_TARGET)


def _made(plan: CompactionPlan) -> Sequence[int]:
    return plan.made if plan.state is CompactionState.COMPLETED else ()


def _merge_info(plan: CompactionPlan, made: Sequence[int], target: int) -> milvus_pb2.CompactionMergeInfo:
    """``target``: for clients that know one; ``made``: all that were made of the inputs."""
    return milvus_pb2.CompactionMergeInfo(
        sources=plan.inputs,
        target=target,
        targets=made,
        plan_id=plan.plan_id,
        trigger_id=plan.trigger_id,
        collection_id=plan.collection_id,
        partition_id=plan.partition_id,
        channel=plan.vchannel,
        type=_type(plan),
        state=_TASK_STATES[plan.state],
        failure_reason=plan.reason,
    )


def _type(plan: CompactionPlan) -> common_pb2.CompactionType.ValueType:
    if plan.clustering is not None:
        return common_pb2.CompactionTypeClustering
    return common_pb2.CompactionTypeLevel0Delete if plan.deltas else common_pb2.CompactionTypeMix
