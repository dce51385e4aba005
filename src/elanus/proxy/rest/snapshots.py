"""The endpoints of snapshots and of external collections: RPCs by name, as this release has them or not."""

from __future__ import annotations

from typing import Any

from elanus.proxy.rest import bodies
from elanus.proxy.rest.endpoint import Endpoint, rpc_endpoint
from elanus.proxy.rest.jobs import job_number
from elanus.proxy.wire.by_name import as_json


def _shown(found: Any) -> object:
    """The response without its status."""
    shown = as_json(found)
    shown.pop("status")
    return shown


def _started(found: Any) -> object:
    return {"jobId": str(found.job_id)}


def _job(body: bodies.SnapshotJob) -> dict[str, Any]:
    return {"job_id": job_number(body.job_id)}


def _pin(body: bodies.UnpinSnapshot) -> dict[str, Any]:
    return {"pin_id": job_number(body.pin_id)}


_RESTORE = "Restore a snapshot into a new collection"
_STATE = "The state of a job that restores a snapshot"
ENDPOINTS: tuple[Endpoint, ...] = (
    rpc_endpoint("snapshots/create", bodies.NewSnapshot, "CreateSnapshot", "Create a snapshot"),
    rpc_endpoint("snapshots/drop", bodies.OfSnapshot, "DropSnapshot", "Drop a snapshot"),
    rpc_endpoint(
        "snapshots/list",
        bodies.MaybeOfCollection,
        "ListSnapshots",
        "List the names of the snapshots",
        lambda found: list(found.snapshots),
    ),
    rpc_endpoint("snapshots/describe", bodies.OfSnapshot, "DescribeSnapshot", "Describe a snapshot", _shown),
    rpc_endpoint("snapshots/restore", bodies.RestoreSnapshot, "RestoreSnapshot", _RESTORE, _started),
    rpc_endpoint(
        "snapshots/get_restore_state",
        bodies.SnapshotJob,
        "GetRestoreSnapshotState",
        _STATE,
        lambda found: as_json(found.info),
        _job,
    ),
    rpc_endpoint(
        "snapshots/list_restore_jobs",
        bodies.MaybeOfCollection,
        "ListRestoreSnapshotJobs",
        "List the jobs that restore snapshots",
        lambda found: [as_json(job) for job in found.jobs],
    ),
    rpc_endpoint(
        "snapshots/pin_data",
        bodies.PinSnapshot,
        "PinSnapshotData",
        "Keep the files of a snapshot for a while",
        lambda found: {"pinId": str(found.pin_id)},
    ),
    rpc_endpoint(
        "snapshots/unpin_data",
        bodies.UnpinSnapshot,
        "UnpinSnapshotData",
        "Release the files of a snapshot",
        fields=_pin,
    ),
    rpc_endpoint(
        "jobs/snapshot/restore_external",
        bodies.RestoreExternalSnapshot,
        "RestoreExternalSnapshot",
        "Restore an exported snapshot into a new collection",
        _started,
    ),
    rpc_endpoint(
        "jobs/snapshot/export", bodies.ExportSnapshot, "ExportSnapshot", "Export a snapshot", _started
    ),
    rpc_endpoint(
        "jobs/snapshot/describe",
        bodies.SnapshotJob,
        "GetRestoreSnapshotState",
        _STATE,
        lambda found: as_json(found.info),
        _job,
    ),
    rpc_endpoint(
        "jobs/snapshot/list",
        bodies.MaybeOfCollection,
        "ListRestoreSnapshotJobs",
        "List the jobs that restore snapshots",
        lambda found: [as_json(job) for job in found.jobs],
    ),
    rpc_endpoint(
        "jobs/external_collection/refresh",
        bodies.ExternalRefresh,
        "RefreshExternalCollection",
        "Refresh an external collection",
        _started,
    ),
    rpc_endpoint(
        "jobs/external_collection/describe",
        bodies.SnapshotJob,
        "GetRefreshExternalCollectionProgress",
        "The state of a job that refreshes an external collection",
        lambda found: as_json(found.job_info),
        _job,
    ),
    rpc_endpoint(
        "jobs/external_collection/list",
        bodies.MaybeOfCollection,
        "ListRefreshExternalCollectionJobs",
        "List the jobs that refresh external collections",
        lambda found: [as_json(job) for job in found.jobs],
    ),
)
