"""The endpoints of import jobs, as ``pymilvus.bulk_writer`` calls them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import structs

from elanus.core.errors import InvalidParameter
from elanus.core.imports import ImportState
from elanus.proxy.access.caller import Caller
from elanus.proxy.api.verbs import Verbs
from elanus.proxy.calls import Operation
from elanus.proxy.rest import bodies
from elanus.proxy.rest.endpoint import Endpoint, Session, endpoint
from elanus.proxy.rest.errors import BadFormat, MissingField, reported
from elanus.proxy.rest.rest_operation import RestOperation
from elanus.proxy.wire.connector import Connector, place_of_import
from elanus.proxy.wire.import_options import KEY
from elanus.proxy.wire.imports import COMPLETE_TIME, FILES_BYTES, WAITS_FOR
from elanus.proxy.wire.unsupported import IDEMPOTENCY_KEY, unsupported

COMMIT_IMPORT, ABORT_IMPORT = "Rest.CommitImport", "Rest.AbortImport"
_STATES = {
    ImportState.PENDING: "Pending",
    ImportState.STARTED: "Importing",
    ImportState.PERSISTED: "Importing",
    ImportState.COMPLETED: "Completed",
    ImportState.FAILED: "Failed",
}
_UNCOMMITTED = "Uncommitted"
_OWN_FIELDS = frozenset({"collection_name", "db_name", "partition_name", "files", "options", "job_id"})
_ROWS = ("importedRows", "totalRows")
"""They are counted for all files together. Sizes are known by file, once the rows are committed; until then
they are 0."""
_NUMPY = ".npy"
_PAGES = frozenset({"page_size", "current_page"})
_ELSEWHERE = "put the files below the server's directory for imports, and name them in files"


def _refuse_cloud_fields(body: bodies.CloudFields) -> None:
    """Raises `RestError` for a field that only the managed service reads, if it is set."""
    for name in body.__struct_fields__:
        if name not in _OWN_FIELDS | _PAGES and getattr(body, name):
            raise reported(unsupported(f"the field {name} of an import", _ELSEWHERE))


def create(session: Session, body: bodies.Import) -> object:
    """Start an import of files below the server's directory for imports"""
    _refuse_cloud_fields(body)
    if not body.files:
        raise MissingField(type(body).__name__, "files")
    for group in body.files:
        if len(group) != 1 and not (group and all(file.endswith(_NUMPY) for file in group)):
            raise BadFormat(
                f"each list in files must hold one file, or the NumPy files of one table, got {len(group)}"
            )
    found = session.rpc(
        "Import",
        body,
        files=[file for group in body.files for file in group],
        options=_with_key(body.options, session.caller.idempotency_key),
    )
    return {"jobId": str(found.tasks[0])}


def _with_key(options: dict[str, str], key: str) -> dict[str, str]:
    """Return the options with the key that the header names. Raises `RestError` if they name another."""
    if key and options.setdefault(KEY, key) != key:
        raise reported(InvalidParameter(f"{KEY} and the header {IDEMPOTENCY_KEY} are different: send one"))
    return options


def describe(session: Session, body: bodies.ImportJob) -> object:
    """The state of an import job: its progress in percent, its rows, or why it failed"""
    _refuse_cloud_fields(body)
    return _shown(session.rpc("GetImportState", task=job_number(body.job_id)), details=True)


def job_number(job: int | str) -> int:
    """Return the number of a job, which clients send as a text. Raises `RestError`."""
    try:
        number = int(job)
    except ValueError:
        number = -1
    if not 0 <= number < 2**63:
        raise BadFormat(f"jobId [{str(job)[:100]}] is not the number of a job")
    return number


def names(session: Session, body: bodies.ImportJobs) -> object:
    """List the import jobs of a collection, or of all, the latest first"""
    _refuse_cloud_fields(body)
    found = session.rpc("ListImportTasks", collection_name=body.collection_name, db_name=body.db_name)
    tasks = [_shown(task) for task in reversed(found.tasks)]
    shown = tasks
    if body.page_size > 0:
        first = max(body.current_page - 1, 0) * body.page_size
        shown = tasks[first : first + body.page_size]
    return {
        "records": shown,
        "count": len(tasks),
        "currentPage": body.current_page,
        "pageSize": body.page_size or len(tasks),
    }


def _shown(task: Any, *, details: bool = False) -> dict[str, object]:
    infos = {pair.key: pair.value for pair in task.infos}
    shown: dict[str, object] = {
        "jobId": str(task.id),
        "collectionName": infos.get("collection", ""),
        "state": _UNCOMMITTED if WAITS_FOR in infos else _STATES[ImportState(task.state)],
        "progress": int(infos.get("progress_percent", "0")),
        "importedRows": task.row_count,
        "totalRows": task.row_count,
    }
    if ended := infos.get(COMPLETE_TIME):
        shown["completeTime"] = ended
    if reason := infos.get("failed_reason"):
        shown["reason"] = reason
    if rejected := infos.get("rejected_rows"):
        shown["rejectedRows"], shown["rejectedIn"] = int(rejected), infos["rejected_in"]
    if left_out := infos.get("duplicate_rows_left_out"):
        shown["duplicateRowsLeftOut"] = int(left_out)
    if details:
        files = [file for file in infos.get("files", "").split(",") if file]
        each = ("state", "progress", "completeTime", *(_ROWS if len(files) == 1 else ()))
        common = {name: shown[name] for name in each if name in shown}
        known = [int(size) for size in infos.get(FILES_BYTES, "").split(",") if size]
        shown["fileSize"] = sum(known)
        sizes = known if len(known) == len(files) else [0] * len(files)
        shown["details"] = [
            {"fileName": file, "fileSize": size, **common} for file, size in zip(files, sizes, strict=True)
        ]
    return shown


def commit(session: Session, body: bodies.ImportJob) -> object:
    """Commit an import with the option `auto_commit=false`, when it is Uncommitted"""
    return _ended(session, body, COMMIT_IMPORT)


def abort(session: Session, body: bodies.ImportJob) -> object:
    """Abort an import that has not committed"""
    return _ended(session, body, ABORT_IMPORT)


def _ended(session: Session, body: bodies.ImportJob, operation: str) -> object:
    _refuse_cloud_fields(body)
    session.operation(operation, structs.replace(body, job_id=job_number(body.job_id)))
    return {}


def import_operations(verbs: Verbs) -> Iterator[Operation]:
    """Yield the operations that commit and abort an import, which are no RPCs of the reference either."""

    def objects(body: bodies.ImportJob, caller: Caller) -> tuple[str, tuple[str, ...]]:
        return place_of_import(verbs, int(body.job_id))

    def commit_import(body: bodies.ImportJob, caller: Caller) -> None:
        verbs.commit_import(int(body.job_id))

    def abort_import(body: bodies.ImportJob, caller: Caller) -> None:
        verbs.cancel_import(int(body.job_id))

    yield RestOperation(COMMIT_IMPORT, Connector.commit_import, commit_import, objects)
    yield RestOperation(ABORT_IMPORT, Connector.cancel_import, abort_import, objects)


ENDPOINTS: tuple[Endpoint, ...] = (
    endpoint("jobs/import/list", bodies.ImportJobs, names, "ListImportTasks"),
    endpoint("jobs/import/create", bodies.Import, create, "Import"),
    endpoint("jobs/import/describe", bodies.ImportJob, describe, "GetImportState"),
    endpoint("jobs/import/get_progress", bodies.ImportJob, describe, "GetImportState"),
    endpoint("jobs/import/commit", bodies.ImportJob, commit, COMMIT_IMPORT),
    endpoint("jobs/import/abort", bodies.ImportJob, abort, ABORT_IMPORT),
)
