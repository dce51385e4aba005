"""The RPCs of snapshots. A restore is complete when it is answered: no row is copied."""

from __future__ import annotations

from elanus.api.snapshots import RestoreJob
from elanus.core.errors import InvalidParameter
from elanus.core.names import check_collection_name
from elanus.core.timestamps import physical_ms
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.permission import NO_PRIVILEGE, ObjectType
from elanus.proxy.api.snapshots import SnapshotVerbs
from elanus.proxy.wire.pins import Place, place_of_pin
from elanus.proxy.wire.requests import database_of, rpc
from elanus.proxy.wire.status import success
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2

_DONE = 100
_PROTECTION_S_MAX = 7 * 24 * 3600
_PIN_S_MAX = 30 * 24 * 3600


class Snapshots:
    def __init__(self, verbs: SnapshotVerbs) -> None:
        self._verbs = verbs

    @rpc(
        "name",
        "description",
        "collection_name",
        "compaction_protection_seconds",
        privilege="PrivilegeCreateSnapshot",
        on="collection_name",
    )
    def CreateSnapshot(self, request: milvus_pb2.CreateSnapshotRequest, caller: Caller) -> common_pb2.Status:
        """``compaction_protection_seconds`` changes nothing: a snapshot keeps its files whatever compaction
        does."""
        _check_seconds(
            "compaction_protection_seconds", request.compaction_protection_seconds, _PROTECTION_S_MAX
        )
        self._verbs.create_snapshot(
            database_of(request, caller),
            check_collection_name(request.collection_name),
            request.name,
            request.description,
            caller.time_left_s,
        )
        return success()

    @rpc("name", "collection_name", privilege="PrivilegeDropSnapshot", on="collection_name")
    def DropSnapshot(self, request: milvus_pb2.DropSnapshotRequest, caller: Caller) -> common_pb2.Status:
        name = check_collection_name(request.collection_name)
        self._verbs.drop_snapshot(database_of(request, caller), name, request.name)
        return success()

    @rpc("collection_name", privilege="PrivilegeListSnapshots", on="collection_name")
    def ListSnapshots(
        self, request: milvus_pb2.ListSnapshotsRequest, caller: Caller
    ) -> milvus_pb2.ListSnapshotsResponse:
        name = request.collection_name and check_collection_name(request.collection_name)
        names = self._verbs.list_snapshots(database_of(request, caller), name)
        return milvus_pb2.ListSnapshotsResponse(status=success(), snapshots=names)

    @rpc("name", "collection_name", privilege="PrivilegeDescribeSnapshot", on="collection_name")
    def DescribeSnapshot(
        self, request: milvus_pb2.DescribeSnapshotRequest, caller: Caller
    ) -> milvus_pb2.DescribeSnapshotResponse:
        name = check_collection_name(request.collection_name)
        view = self._verbs.describe_snapshot(database_of(request, caller), name, request.name)
        return milvus_pb2.DescribeSnapshotResponse(
            status=success(),
            name=view.name,
            description=view.description,
            collection_name=view.collection,
            partition_names=view.partitions,
            create_ts=physical_ms(view.moment),
            s3_location=view.location,
        )

    @rpc(
        "name",
        "collection_name",
        "target_db_name",
        "target_collection_name",
        privilege="PrivilegeRestoreSnapshot",
        on="collection_name",
        arrives_in="target_db_name",
    )
    def RestoreSnapshot(
        self, request: milvus_pb2.RestoreSnapshotRequest, caller: Caller
    ) -> milvus_pb2.RestoreSnapshotResponse:
        database = database_of(request, caller)
        job = self._verbs.restore_snapshot(
            database,
            check_collection_name(request.collection_name),
            request.name,
            request.target_db_name or database,
            check_collection_name(request.target_collection_name),
        )
        return milvus_pb2.RestoreSnapshotResponse(status=success(), job_id=job.job_id)

    @rpc("job_id", privilege=NO_PRIVILEGE)
    def GetRestoreSnapshotState(
        self, request: milvus_pb2.GetRestoreSnapshotStateRequest, caller: Caller
    ) -> milvus_pb2.GetRestoreSnapshotStateResponse:
        job = self._verbs.restore_job(request.job_id)
        return milvus_pb2.GetRestoreSnapshotStateResponse(status=success(), info=_info(job))

    @rpc("collection_name", privilege="PrivilegeRestoreSnapshot", on="collection_name")
    def ListRestoreSnapshotJobs(
        self, request: milvus_pb2.ListRestoreSnapshotJobsRequest, caller: Caller
    ) -> milvus_pb2.ListRestoreSnapshotJobsResponse:
        name = request.collection_name and check_collection_name(request.collection_name)
        jobs = self._verbs.restore_jobs(database_of(request, caller), name)
        return milvus_pb2.ListRestoreSnapshotJobsResponse(status=success(), jobs=map(_info, jobs))

    @rpc("name", "collection_name", "ttl_seconds", privilege="PrivilegePinSnapshotData")
    def PinSnapshotData(
        self, request: milvus_pb2.PinSnapshotDataRequest, caller: Caller
    ) -> milvus_pb2.PinSnapshotDataResponse:
        _check_seconds("ttl_seconds", request.ttl_seconds, _PIN_S_MAX)
        name = check_collection_name(request.collection_name)
        pin_id = self._verbs.pin_snapshot(
            database_of(request, caller), name, request.name, request.ttl_seconds
        )
        return milvus_pb2.PinSnapshotDataResponse(status=success(), pin_id=pin_id)

    @rpc(
        "pin_id",
        privilege="PrivilegeUnpinSnapshotData",
        on="pin_id",
        object_type=ObjectType.GLOBAL,
        found_by="place_of_pin",
    )
    def UnpinSnapshotData(
        self, request: milvus_pb2.UnpinSnapshotDataRequest, caller: Caller
    ) -> common_pb2.Status:
        """Releasing a pin that is gone succeeds: it may have expired."""
        self._verbs.unpin_snapshot(request.pin_id)
        return success()

    def place_of_pin(self, pin_id: int) -> Place | None:
        return place_of_pin(self._verbs, pin_id)


def _check_seconds(name: str, seconds: int, longest: int) -> None:
    if seconds < 0:
        raise InvalidParameter(f"{name} must be non-negative, but got {seconds}")
    if seconds > longest:
        raise InvalidParameter(
            f"{name} must not exceed {longest}: {seconds} exceeds maximum of {longest} "
            f"({longest // 86400} days)"
        )


def _info(job: RestoreJob) -> milvus_pb2.RestoreSnapshotInfo:
    done, executing = milvus_pb2.RestoreSnapshotCompleted, milvus_pb2.RestoreSnapshotExecuting
    return milvus_pb2.RestoreSnapshotInfo(
        job_id=job.job_id,
        snapshot_name=job.snapshot,
        db_name=job.database,
        collection_name=job.collection,
        state=done if job.is_done else executing,
        progress=_DONE if job.is_done else 0,
        start_time=job.began_ms,
        time_cost=job.took_ms,
    )
