"""The RPCs of compaction. Choices that are not supported (segments, a channel) are refused."""

from __future__ import annotations

from collections import Counter

from elanus.core.compaction import CompactionPlan, CompactionState
from elanus.core.errors import InvalidParameter
from elanus.core.names import check_collection_name
from elanus.proxy.calls import NO_PRIVILEGE, Caller
from elanus.proxy.port import Front
from elanus.proxy.wire.requests import database_of, rpc
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2

_MB = 1024 * 1024
_TARGET_MAX_BYTES = 2**62
"""Far beyond any segment: clients send the largest number possible to merge as much as possible."""
_NO_TARGET = -1
"""The reference's answer while a plan has no result."""


class Compaction:
    def __init__(self, front: Front) -> None:
        self._front = front

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
        started = self._front.compact(
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

    @rpc("compactionID", privilege=NO_PRIVILEGE)
    def GetCompactionStateWithPlans(
        self, request: milvus_pb2.GetCompactionPlansRequest, caller: Caller
    ) -> milvus_pb2.GetCompactionPlansResponse:
        plans = self._plans(request)
        return milvus_pb2.GetCompactionPlansResponse(
            state=_state(plans), mergeInfos=[info for plan in plans for info in _merge_infos(plan)]
        )

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
        return tuple(self._front.compaction_plans(request.compactionID))


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
    made = plan.made if plan.state is CompactionState.COMPLETED else ()
    return [
        milvus_pb2.CompactionMergeInfo(sources=plan.inputs, target=target) for target in made or (_NO_TARGET,)
    ]
