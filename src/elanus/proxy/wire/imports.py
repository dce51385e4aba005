"""The RPCs of bulk import, as clients of the 2.x gRPC generation call them.

Newer clients have another bulk import, over HTTP (``pymilvus.bulk_writer``): see `elanus.proxy.rest.jobs`.
"""

from __future__ import annotations

from datetime import UTC, datetime

from elanus.core.errors import InvalidParameter
from elanus.core.import_files import REJECTS
from elanus.core.imports import ImportState, ImportTask
from elanus.core.names import check_collection_name
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.permission import NO_PRIVILEGE
from elanus.proxy.api.imports import ImportVerbs
from elanus.proxy.wire.import_options import import_options
from elanus.proxy.wire.requests import add_pairs, database_of, rpc, to_dict
from elanus.proxy.wire.status import success
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2
from elanus.proxy.wire.unsupported import unsupported

_FAILED_REASON = "failed_reason"
_REJECTED_ROWS, _REJECTED_IN = "rejected_rows", "rejected_in"
_LEFT_OUT_ROWS = "duplicate_rows_left_out"
_WRITTEN_PERCENT = 90
"""The progress of a task whose rows are written but not yet indexed and served."""
_MS_PER_S = 1000
_WIRE_STATES = {ImportState.UNCOMMITTED: ImportState.STARTED}
"""Clients of the RPCs know no number for it; `WAITS_FOR` says it."""
WAITS_FOR, COMMIT = "waits_for", "commit"
COMPLETE_TIME = "complete_time"
FILES_BYTES = "files_bytes"
"""The sizes of the files, in the order of their names; absent while they are not known."""


class BulkImports:
    def __init__(self, verbs: ImportVerbs) -> None:
        self._verbs = verbs

    @rpc(
        "collection_name",
        "partition_name",
        "files",
        "options",
        "channel_names",
        "row_based",
        privilege="PrivilegeImport",
        on="collection_name",
    )
    def Import(self, request: milvus_pb2.ImportRequest, caller: Caller) -> milvus_pb2.ImportResponse:
        """Start one task for all files. A path may begin with ``/``, which is the directory for imports.

        ``row_based`` is ignored: it distinguishes formats that are not supported, and Parquet is neither. The
        options are those of `elanus.proxy.wire.import_options`.
        """
        if request.channel_names:
            raise unsupported("the field channel_names of Import", "rows go by the hash of their keys")
        options = import_options(to_dict(request.options))
        task = self._verbs.start_import(
            database_of(request, caller),
            check_collection_name(request.collection_name),
            request.partition_name,
            tuple(file.removeprefix("/") for file in request.files),
            options,
        )
        return milvus_pb2.ImportResponse(status=success(), tasks=[task.task_id])

    @rpc("task", privilege=NO_PRIVILEGE)
    def GetImportState(
        self, request: milvus_pb2.GetImportStateRequest, caller: Caller
    ) -> milvus_pb2.GetImportStateResponse:
        return import_state(self._verbs.import_task(request.task))

    @rpc("collection_name", "limit", privilege="PrivilegeImport", on="collection_name")
    def ListImportTasks(
        self, request: milvus_pb2.ListImportTasksRequest, caller: Caller
    ) -> milvus_pb2.ListImportTasksResponse:
        if request.limit < 0:
            raise InvalidParameter(f"limit is {request.limit}: it must not be negative (0: all tasks)")
        name = request.collection_name and check_collection_name(request.collection_name)
        tasks = self._verbs.import_tasks(database_of(request, caller), name, request.limit)
        return milvus_pb2.ListImportTasksResponse(status=success(), tasks=map(import_state, tasks))


def import_state(task: ImportTask) -> milvus_pb2.GetImportStateResponse:
    response = milvus_pb2.GetImportStateResponse(
        status=success(),
        state=common_pb2.ImportState.ValueType(_WIRE_STATES.get(task.state, task.state)),
        row_count=task.rows,
        id=task.task_id,
        collection_id=task.collection_id,
        segment_ids=task.segments,
        create_ts=task.created_ms // _MS_PER_S,
    )
    infos = {
        "files": ",".join(task.files),
        "collection": task.collection,
        "partition": task.partition,
        _FAILED_REASON: task.reason,
        "progress_percent": str(_percent(task)),
    }
    if task.state is ImportState.UNCOMMITTED:
        infos[WAITS_FOR] = COMMIT
    if task.files_bytes:
        infos[FILES_BYTES] = ",".join(map(str, task.files_bytes))
    if task.ended_ms:
        infos[COMPLETE_TIME] = _utc(task.ended_ms)
    if task.rejected:
        infos |= {_REJECTED_ROWS: str(task.rejected), _REJECTED_IN: f"{REJECTS}/{task.task_id}"}
    if task.left_out:
        infos[_LEFT_OUT_ROWS] = str(task.left_out)
    add_pairs(response.infos, infos)
    return response


def _utc(wall_ms: int) -> str:
    """A moment as text, in whole seconds: ``2024-05-18T02:57:13Z``."""
    return datetime.fromtimestamp(wall_ms // _MS_PER_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _percent(task: ImportTask) -> int:
    match task.state:
        case ImportState.COMPLETED:
            return 100
        case ImportState.PERSISTED | ImportState.UNCOMMITTED:
            return _WRITTEN_PERCENT
        case _:
            return int(task.percent * _WRITTEN_PERCENT / 100)
