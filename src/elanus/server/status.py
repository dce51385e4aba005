"""The report of a server about itself: the answer of ``/status``, as values.

The server fills these in, `elanus.server.http_port` sends them as JSON under the same names, and
`elanus.cli.status` shows them. They are a snapshot for people and scripts; the server itself never
bases a decision on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elanus.storage.port import StoreFailures

REQUEST_HEADER = "X-Elanus-Request"
"""The header that every request that changes the server must have."""


@dataclass(frozen=True, slots=True)
class RoleStatus:
    """``state``: Initializing, Healthy or Abnormal. ``detail``: one line, may be empty."""

    role: str
    state: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ChannelStatus:
    """A pchannel. ``tick``: its last time tick as a hybrid timestamp; ``lag_ms``: its age.

    ``data_node``: the id of the data node that owns its ``vchannels``, 0 if no node does. ``quarantined``:
    how many of its entries readers skip because they do not fit their collection's schema. ``held_by``: the
    id of the proxy that bounds its next tick, 0 if none does. ``refusal``: why nothing is written to it, with
    the remedy; "" if it takes entries.
    """

    pchannel: str
    tick: int
    lag_ms: float
    log_bytes: int
    vchannels: int = 0
    data_node: int = 0
    quarantined: int = 0
    held_by: int = 0
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class CollectionStatus:
    """``loaded_percent``: ``None`` when not loaded. ``segments``: the number of segments by state.
    ``unreadable``: the segments that query nodes cannot read, each with the reason and the remedy;
    ``unreadable_logs``: the same of its log. ``collection_id``: 0 in a status of an older release."""

    database: str
    name: str
    loaded_percent: int | None
    rows: int
    segments: Mapping[str, int]
    unreadable: Sequence[str] = ()
    unreadable_logs: Sequence[str] = ()
    collection_id: int = 0


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """``nodes``: ids of its live query nodes. ``missing_nodes``: how many nodes it lacks for its capacity.
    ``replicas``: how many loaded replicas belong to it."""

    name: str
    nodes: Sequence[int]
    missing_nodes: int
    replicas: int


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job of the ledger. Times are ISO 8601 in UTC, "" for an event that has not happened.

    ``cause``: why it was ordered; ``waiting``: who waits for its end. ``inputs`` and ``outputs`` are the
    first of ``input_count`` and ``output_count``. While the job runs, ``rows`` and ``bytes`` are the amounts
    its tasks have reported; ``percent`` and ``tasks_done`` of ``tasks`` show its progress. ``index_type`` and
    ``planned_s``: of a finished index build, see `elanus.core.build_speed`.
    """

    job_id: str
    kind: str
    state: str
    cause: str
    started: str
    duration_ms: float
    rows: int
    bytes: int
    waiting: Sequence[str] = ()
    attempt: int = 1
    ordered: str = ""
    ended: str = ""
    percent: float = 0.0
    tasks: int = 0
    tasks_done: int = 0
    inputs: Sequence[str] = ()
    input_count: int = 0
    outputs: Sequence[str] = ()
    output_count: int = 0
    ui_url: str = ""
    error: str = ""
    index_type: str = ""
    planned_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """Data node and index node. ``pid``: of the process with their Spark; ``None`` while there is none.
    ``spark``: what that does, an `elanus.api.pipeline.SparkState`; "" when that is not known. ``cause``: why
    it ended the last time, "" if it never did."""

    state: str
    pid: int | None
    restarts: int
    spark: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class HeldStatus:
    """Files that somebody keeps.

    ``segments`` and ``bytes``: of dropped segments whose time is over; 0: a pin. ``since``: ISO 8601 in UTC,
    when their time was over, or the moment that the pin's reader reads; ``held_s``: how long ago that was
    when garbage was last collected.
    """

    holder: str
    collection_id: int
    segments: int
    bytes: int
    since: str
    held_s: float


@dataclass(frozen=True, slots=True)
class GarbageStatus:
    """Garbage collection. ``waiting_bytes``: of dropped segments whose files still exist;
    ``reclaimed_bytes``: since the data coordinator started. ``error``: why the last round was aborted.
    ``held``: what readers keep, as of the last round."""

    state: str = "idle"
    waiting_bytes: int = 0
    reclaimed_bytes: int = 0
    error: str = ""
    held: Sequence[HeldStatus] = ()


@dataclass(frozen=True, slots=True)
class RecallStatus:
    """The measured recall of a kind of search. ``collection``: with its database; ``index``: the type;
    ``band``: of the share of rows that filters leave. ``low`` and ``high``: the interval that holds the true
    recall 95 times in 100. ``cause``: why it is below the ``target``, "" if it is not."""

    collection: str
    field: str
    index: str
    band: str
    samples: int
    recall: float
    low: float
    high: float
    target: float
    cause: str = ""


@dataclass(frozen=True, slots=True)
class CertificateStatus:
    """A certificate of the settings. ``expires``: ISO 8601 in UTC; ``days_left``: negative afterwards."""

    setting: str
    path: str
    expires: str
    days_left: float


@dataclass(frozen=True, slots=True)
class Resources:
    """The figures and limits of the answering process.

    ``memory_bytes``: resident; ``memory_limit_bytes``: of its container or machine, 0 if unknown.
    ``disk_free_bytes``: the least of the disks it writes to; None if unknown. ``open_files_limit``: 0 for
    none. ``default_root_password``: root signs in with the password of a new server; ``open_to_all``: other
    machines reach it, and nobody signs in. ``log_synced``: acknowledged writes are on stable storage.
    ``store_failures``: of the requests to the object store; None if the last one was answered.
    """

    growing_bytes: int = 0
    growing_soft_bytes: int = 0
    growing_hard_bytes: int = 0
    memory_bytes: int = 0
    memory_limit_bytes: int = 0
    disk_free_bytes: int | None = None
    disk_reserve_bytes: int = 0
    open_files: int = 0
    open_files_limit: int = 0
    certificates: Sequence[CertificateStatus] = ()
    default_root_password: bool = False
    open_to_all: bool = False
    log_synced: bool = True
    store_failures: StoreFailures | None = None


@dataclass(frozen=True, slots=True)
class ServingStatus:
    """A further serving process. ``pid``: None while it does not run. ``collections``: those that it answers
    reads of. ``reads``: answered by it since it started; ``passed_on``: calls of all kinds that the main
    process answered for it. ``loop_lag_ms``: as in `Status`. ``slow_requests``: since it started."""

    number: int
    pid: int | None
    restarts: int
    collections: int = 0
    reads: int = 0
    passed_on: int = 0
    memory_bytes: int = 0
    loop_lag_ms: float = 0.0
    slow_requests: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """The complete answer of ``/status``. ``loop_lag_ms``: the longest delay of the answering process's event
    loop in the last 30 to 60 seconds. ``slow_requests``: since the process
    started; `elanus slow` shows the last. ``recalls``: of the searches that the process answered. Both count
    those of the further serving processes of a standalone server, ``serving``, too."""

    version: str
    uptime_s: float
    roles: Sequence[RoleStatus]
    channels: Sequence[ChannelStatus]
    collections: Sequence[CollectionStatus]
    jobs: Sequence[JobStatus]
    pipeline: PipelineStatus
    garbage: GarbageStatus = GarbageStatus()
    resource_groups: Sequence[ResourceGroup] = ()
    loop_lag_ms: float = 0.0
    resources: Resources | None = None
    slow_requests: int = 0
    recalls: Sequence[RecallStatus] = ()
    serving: Sequence[ServingStatus] = ()

    def collection_named(self, collection_id: int) -> str:
        """Return ``DATABASE.NAME``; the id of a collection that does not exist any more."""
        known = (one for one in self.collections if one.collection_id == collection_id)
        return next((f"{one.database}.{one.name}" for one in known), str(collection_id))
