"""Every setting of Elanus: its name, default, bounds and meaning, in one place.

The model below is the only list of settings there is. `elanus.server.settings_load` fills it from a
YAML file, the environment and the command line; `docs/configuration.md` is printed from it by
`elanus.server.settings_page`. A setting is added by adding a field with a description.

Settings are frozen: a running server never changes them. They are plain values, read nowhere at
import time; the composition root passes to each role what the role needs. Limits that are not for
the user to choose stand in `elanus.core.limits`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from elanus.server.settings_access import AccessSettings, AuditSettings
from elanus.server.settings_base import PORT_MAX, Host, Port, Section
from elanus.server.settings_functions import FunctionSettings
from elanus.server.settings_http import HttpSettings
from elanus.server.settings_pipeline import PipelineSettings
from elanus.server.settings_querynode import QuerynodeSettings
from elanus.server.settings_services import (
    ChannelsSettings,
    ClusterSettings,
    LogSettings,
    MetaSettings,
    StorageSettings,
)


class ProxySettings(AccessSettings):
    """The gRPC front that Milvus clients connect to."""

    port: Port = 19530
    """The port to listen on; 0 takes a free one, which `elanus status` shows."""
    count: int = Field(default=1, ge=1, le=64)
    """The number of proxies of this server. The first listens on `port`, the others on the ports that
    follow. Each has its own threads and task queues; clients may use any of them."""
    processes: int = Field(default=1, ge=0, le=64)
    """The number of processes of `elanus serve` that answer searches and queries, including the main one.
    The others also listen on `port`, each with a copy of what is loaded, and pass all other calls to the
    main process (docs/serving-processes.md). 0: one for every two processors. In a cluster, start more
    processes with the roles proxy and querynode instead."""
    workers: int = Field(default=32, ge=1, le=1024)
    """The number of threads that answer requests, and so of requests that are processed at a time. With
    `serving` = `loop`, short reads do not need one."""
    serving: Literal["loop", "grpc"] = "loop"
    """The gRPC server. `loop`: the thread that receives a read answers it, if reads of its kind have taken
    less than a millisecond so far; the `workers` answer all other calls. A call takes about half the
    processor time. The loop is tested at startup and needs the release of grpcio that Elanus requires;
    otherwise a warning is logged and `grpc` is used. `grpc`: grpcio's own server, in which the `workers`
    answer all calls."""
    connections_max: int = Field(default=0, ge=0, le=1_000_000)
    """The maximum number of client connections, of the gRPC port and of the REST API each. Calls of further
    connections are refused with the gRPC status RESOURCE_EXHAUSTED or the HTTP status 503, and a text; the
    log has a warning once a minute. An eighth more, but at most 64, are refused in this way. Others are
    closed at once, and their clients get the gRPC status UNAVAILABLE (`Socket closed`). Each connection is an
    open file of the process (`ulimit -n`). 0: of the open files that the process may have, five eighths for
    gRPC and an eighth for the REST API, divided by `count`."""
    time_tick_interval_ms: int = Field(default=200, ge=10, le=10_000)
    """How often the proxy reports, per pchannel, the timestamp up to which its writes are finished. A
    strong read does not wait for this; it requests a report. A pchannel without writes gets a tick once a
    second, or every half `graceful_time_ms` if that is less."""
    max_task_num: int = Field(default=1024, ge=1, le=65_536)
    """The number of unfinished tasks in each of the three task queues above which requests are refused."""
    message_max_mb: int = Field(default=64, ge=1, le=512)
    """The largest request that a client may send. A larger one is refused before it is decoded, with the gRPC
    status RESOURCE_EXHAUSTED and the name of this setting: insert fewer rows at a time, or use
    `elanus import`. gRPC itself refuses requests of more than twice this size, and those of more than 512 MB.
    `requests_max_mb` limits what all of them take together."""
    requests_max_mb: int = Field(default=1024, ge=1, le=1_000_000)
    """The most memory for requests of more than 64 kB that are being received or answered, at least
    `message_max_mb`. Further ones are refused with the gRPC status UNAVAILABLE or the HTTP status 503, and
    clients send them again. gRPC does not show how much of a request has arrived: it counts, or is refused,
    once it is there as a whole, before it is decoded: small integers and empty texts take up to eight times
    as much then. With the `serving` mode `grpc` at most `workers` requests arrive at a time."""
    answers_max_mb: int = Field(default=1024, ge=1, le=1_000_000)
    """The most memory for answers of more than 64 kB that their clients have not read yet, beyond which those
    of further searches and queries are withheld: they end with the gRPC status UNAVAILABLE or the HTTP status
    503, and clients send them again. An answer next to which no other waits is never withheld. With the
    `serving` mode `grpc` only the answers of the REST API count."""
    graceful_time_ms: int = Field(default=5000, ge=0, le=3_600_000)
    """How far a read with Bounded consistency may be behind the newest write."""
    read_timeout_s: float = Field(default=60.0, gt=0, le=3600)
    """How long a search or query that has no deadline of its own waits for its timestamp."""
    search_hits_max: int = Field(default=4_000_000, ge=1)
    """The maximum number of hits that one search may request: its vectors times the sum of limit and
    offset, added up over the searches of a hybrid search. To find its groups, a grouping search also ranks
    at most this many rows at a time. A hit takes about 40 bytes of memory during the search, without its
    output fields."""
    answer_max_mb: int = Field(default=256, ge=1, le=500)
    """The maximum size of the output fields of one search or query. A larger answer is refused, before its
    vectors are fetched."""
    segment_filter_ratio: float = Field(default=0.0, ge=0, le=1000)
    """For collections that are clustered by the searched vector: a search examines the nearest clusters of
    each shard and partition, as many as the square root of their number times this ratio. This can miss
    hits. 0: all clusters that may contain a hit. The collection property and the search parameter of the
    same name take precedence."""
    slow_request_ms: int = Field(default=1000, ge=0, le=3_600_000)
    """Searches and queries that take longer are kept, the last hundred of each process (`elanus slow`),
    and logged, at most one per second. For a minute after a slow one, further slow ones are kept with
    their explanation. 0: none are kept."""
    delete_step_keys_max: int = Field(default=1_000_000, ge=1, le=10_000_000)
    """How many keys a delete by filter reads and deletes at a time. If more rows match, they are deleted
    in several batches (docs/consistency.md)."""

    @model_validator(mode="after")
    def _ports_exist(self) -> Self:
        if self.port and self.port + self.count - 1 > PORT_MAX:
            raise ValueError(
                f"count ({self.count}) proxies from port {self.port} on need ports above {PORT_MAX}: "
                "choose a lower port, or 0 for free ones"
            )
        return self

    @property
    def requests_max_bytes(self) -> int:
        return max(self.requests_max_mb, self.message_max_mb) * 1024 * 1024

    @property
    def answers_max_bytes(self) -> int:
        return self.answers_max_mb * 1024 * 1024

    @property
    def processes_wanted(self) -> int:
        """How many processes answer reads."""
        return self.processes or max(1, (os.cpu_count() or 1) // 2)

    @property
    def ports(self) -> tuple[int, ...]:
        """The port of each proxy; 0: a free one."""
        return tuple(self.port + n if self.port else 0 for n in range(self.count))


class RootcoordSettings(Section):
    """Timestamps and the pool of physical channels."""

    dml_channel_num: int = Field(default=16, ge=1, le=1024)
    """The number of physical channels over which the vchannels of all collections are distributed.
    Existing collections keep their channels when it changes."""
    tso_window_ms: int = Field(default=3000, ge=100, le=60_000)
    """How far ahead of use the timestamp oracle persists its upper bound. After a crash, timestamps
    continue above that bound."""
    tso_update_ms: int = Field(default=50, ge=1, le=1000)
    """How often the oracle moves its physical part to the wall clock."""
    accept_log_until_ms: int = Field(default=0, ge=0)
    """A cluster whose etcd was restored from a snapshot that is older than the log does not start: what the
    snapshot does not know would be removed from the log. This setting accepts the loss of it; the error names
    the value, the milliseconds since 1970 up to which the log has entries."""
    users_max: int = Field(default=100, ge=1, le=10_000)
    """The maximum number of users, including root."""
    roles_max: int = Field(default=10, ge=2, le=1000)
    """The maximum number of roles, including admin and public."""


class DatacoordSettings(Section):
    """Segment allocation, sealing and flush."""

    segment_size_max_mb: int = Field(default=512, ge=1, le=16_384)
    """The planned size of a segment, measured as the size of its rows in memory. A standalone server with
    12 GB of memory or more doubles this, `backpressure.growing_soft_mb` and `backpressure.growing_hard_mb`,
    if none of the three is set."""
    seal_proportion: float = Field(default=0.75, gt=0, le=1)
    """A segment is sealed when it reaches this fraction of its planned size."""
    seal_age_s: float = Field(default=86_400, gt=0)
    """A segment with rows is sealed at this age, whatever its size."""
    seal_idle_s: float = Field(default=600, gt=0)
    """A segment with rows is sealed when it has received no new ones for this long."""
    assignment_expiration_ms: int = Field(default=2000, ge=100, le=60_000)
    """How long a proxy may use a segment allocation."""
    retention_s: float = Field(default=432_000, ge=0)
    """How long deleted and expired rows are kept for reads of the past. A read pinned to an older moment
    (time travel, a page of an iterator) is refused; 0 allows only reads of the present."""
    log_hold_s: float = Field(default=600, ge=0)
    """How long the log keeps entries that are already in binlogs for a query node that still has to read
    them but makes no progress. After that the node loads the collections of that part of the log again."""
    allocation_rows_min: int = Field(default=1000, ge=1, le=1_000_000)
    """The minimum number of rows in a segment allocation that a proxy requests, so that small inserts
    rarely need a new one."""
    jobs_max: int = Field(default=1000, ge=1, le=100_000)
    """How many ended Spark jobs the job ledger keeps; the oldest are removed first."""
    jobs_age_max_s: float = Field(default=604_800, gt=0)
    """How long an ended Spark job stays in the job ledger."""


class GcSettings(Section):
    """Garbage collection: files of dropped or superseded data, and of jobs that never committed."""

    enabled: bool = True
    """Whether garbage is collected automatically. `elanus gc` works in any case."""
    interval_s: float = Field(default=3600, gt=0)
    """How often it runs."""
    drop_tolerance_s: float = Field(default=86_400, ge=0)
    """How long files of dropped segments (by a drop of their partition or collection, or because
    compaction replaced them) are kept. Segments that a query node still reads are kept longer."""
    missing_tolerance_s: float = Field(default=86_400, ge=0)
    """How long objects that nothing refers to are kept: superseded manifests, and files of jobs that
    failed or ran twice. 0: they are deleted as soon as no job can commit them any more."""
    commit_deadline_s: float = Field(default=21_600, gt=0)
    """How long a job may take from its start to its commit; a later commit is refused. Must be shorter
    than `missing_tolerance_s`, unless that is 0."""
    record_retention_s: float = Field(default=604_800, ge=0)
    """How long the metadata keeps the records of dropped segments whose files are gone."""

    @model_validator(mode="after")
    def _deadline_within_tolerance(self) -> Self:
        if 0 < self.missing_tolerance_s <= self.commit_deadline_s:
            raise ValueError(
                f"missing_tolerance_s ({self.missing_tolerance_s:g}) is not above commit_deadline_s "
                f"({self.commit_deadline_s:g}): files could be taken from jobs that may still commit them; "
                "raise the one, or lower the other"
            )
        return self


class CompactionSettings(Section):
    """Rewriting flushed segments: small ones into one, and those with many deleted or expired rows."""

    enabled: bool = True
    """Whether segments are compacted automatically. Requests of clients are carried out in any case."""
    interval_s: float = Field(default=60, ge=1, le=86_400)
    """How often all segments are examined, in addition to the examination after each flush."""
    timeout_s: float = Field(default=300, ge=1, le=86_400)
    """How long one compaction may take from its order to its commit, including the wait for a free slot of
    Spark (the reference allows 60 s). One that takes longer is cancelled and planned again."""
    clustering_timeout_s: float = Field(default=7200, ge=1, le=86_400)
    """How long a compaction by a clustering key may take; it rewrites a whole partition of a shard, or about
    190 full segments of it. At most `gc.commit_deadline_s`."""
    orders_max: int = Field(default=0, ge=0, le=1000)
    """The most compactions that a data node is given at a time. 0: as many as its Spark has cores for, with
    one left to flushes, also when workers join or leave; on one machine four at most. They share the cores
    with index builds, and the wait for one counts as part of `compaction.timeout_s`."""
    plans_max: int = Field(default=100, ge=1, le=10_000)
    """The maximum number of compactions that are planned or running at a time, without those that clients
    request: a request is planned as a whole, and its compactions run as data nodes have room."""
    deleted_ratio: float = Field(default=0.2, gt=0, le=1)
    """A segment is rewritten when this fraction of its rows is deleted or expired."""
    deleted_mb: int = Field(default=10, ge=1, le=16_384)
    """A segment is rewritten when its deletes take more than this in delta logs."""
    merge_segments_min: int = Field(default=10, ge=2, le=10_000)
    """Segments below half the planned size are merged when a partition has this many of them on one
    vchannel. If a client requests a compaction, two are enough."""
    merge_delta_logs_min: int = Field(default=16, ge=2, le=10_000)
    """Small delta logs of a vchannel are merged when it has this many of them."""


class RateLimitSettings(Section):
    """The maximum per second over all clients, proxies and collections; 0: no limit. Each proxy's share
    follows the demand of its clients. A collection's own limits are its properties (docs/rate-limits.md).
    Requests over a limit get a rate limit error, which Milvus clients answer by trying again later."""

    insert_max_mb_per_s: float = Field(default=0, ge=0)
    """The size of inserted rows in memory."""
    upsert_max_mb_per_s: float = Field(default=0, ge=0)
    """The size of upserted rows in memory."""
    delete_max_mb_per_s: float = Field(default=0, ge=0)
    """The size of deleted primary keys."""
    search_max_vectors_per_s: float = Field(default=0, ge=0)
    """The number of query vectors in searches, added up over the searches of a hybrid search."""
    query_max_per_s: float = Field(default=0, ge=0)
    """The number of queries."""
    disk_max_mb: int = Field(default=0, ge=0)
    """The maximum size of the files of all collections, in MB (not per second). Above it, further rows are
    refused. Collections and databases have properties for their own limits."""


class BackpressureSettings(Section):
    """When writes are slowed, and when they are refused. Reads and deletes of old data continue."""

    growing_soft_mb: int = Field(default=1024, ge=1)
    """Growing data in the memory of a query node above which its largest segments are sealed and flushed,
    and writes are slowed. A collection with no more than its equal share of it is not slowed."""
    growing_hard_mb: int = Field(default=2048, ge=1)
    """Growing data in the memory of a query node above which writes are refused with a memory error. The last
    eighth of the room above `growing_soft_mb` is for collections with no more than their equal part of
    this. A standalone server lowers it to half of what `pipeline.driver_memory_mb` leaves of its memory
    (of the machine, the container or the systemd unit) and the soft limit to half of that, and logs it."""
    delayed_writers_max: int = Field(default=0, ge=0, le=1024)
    """How many writes of a proxy may be slowed at a time; each occupies one of `proxy.workers`. Further
    writes are refused with a rate limit error, after which Milvus clients retry later. 0: a quarter of
    `proxy.workers`."""
    disk_reserve_mb: int = Field(default=512, ge=0)
    """Free space below which writes are refused with a disk error: on the disk of the data directory, and of
    the directories that `log.url` and `storage.url` name."""

    @model_validator(mode="after")
    def _soft_before_hard(self) -> Self:
        if self.growing_soft_mb > self.growing_hard_mb:
            raise ValueError(
                f"growing_soft_mb ({self.growing_soft_mb}) is above growing_hard_mb "
                f"({self.growing_hard_mb}): writes would be refused before they are slowed"
            )
        return self


class IndexcoordSettings(Section):
    """Index builds."""

    index_rows_min: int = Field(default=1024, ge=0)
    """Segments with fewer rows get no index: an exact scan of so few rows is as fast."""


class ImportsSettings(Section):
    """Bulk imports of files, by clients and by `elanus import`."""

    root: str = Field(default="import", min_length=1)
    """The only directory that files are imported from: a path, relative to the data directory unless it is
    absolute, or the URL of an object store. Clients name files relative to it, and anyone who reaches the
    server can have every file in it imported, those behind symbolic links included."""
    task_mb: int = Field(default=512, ge=1, le=65_536)
    """The size of the rows that one task of an import holds in memory, and so of the largest segments it
    writes, over all shards. As many tasks run at a time as Spark has slots. A task
    takes at most 1 GiB and four times this, and for JSON lists five times the size of the largest in
    addition, but no more than three quarters of the memory there is."""
    at_once: int = Field(default=4, ge=1, le=64)
    """How many imports run at a time. They share Spark's slots fairly, so a short one does not wait for a
    long one."""
    timeout_s: float = Field(default=86_400, gt=0)
    """How long an import may take from its first attempt, including the wait for slots of Spark and
    restarts of processes."""
    tasks_max: int = Field(default=1000, ge=1, le=100_000)
    """How many imports may wait in the queue; further ones are refused."""
    retention_s: float = Field(default=86_400, gt=0)
    """How long the state of an ended import is kept."""
    write_retention_s: float = Field(default=2_592_000, gt=0)
    """How long the name of a write is remembered after its commit (default: 30 days). A write that is
    repeated within that time adds nothing. The last batch of a streaming query is remembered as long as
    the collection exists."""


class SessionSettings(Section):
    """Sessions: each node has one in the metadata, under a lease, by which the others know it."""

    ttl_s: int = Field(default=5, ge=2, le=60)
    """How long a node that does not renew its session counts as alive. After that, ticks no longer wait
    for it, and a standby coordinator replaces it. It acknowledges nothing from then on, and joins again
    under a new id. Short: a death is noticed soon. Long: a pause of the machine is survived."""


class MetricsSettings(Section):
    """The HTTP port for Prometheus, health checks and `elanus status`."""

    enabled: bool = True
    """Whether the port is opened. `elanus status` needs it."""
    host: Host = "127.0.0.1"
    """The address to listen on. Roles can be restarted only from loopback, whatever the address."""
    port: Port = 9091
    """The port to listen on; 0 takes a free one, which the server's announcement in the data
    directory names."""


class LoggingSettings(Section):
    """The server's own messages, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "warning"
    """The minimum severity of messages that are logged."""
    format: Literal["auto", "console", "json"] = "auto"
    """`console` is for people, `json` has one object per line, `auto` chooses by whether standard
    error is a terminal."""


class Settings(Section):
    """All settings of one server. Its fields are the top level of the YAML file."""

    data_dir: Path = Path("elanus-data")
    """The directory for all data of the server. Only one server at a time can use it."""
    proxy: ProxySettings = ProxySettings()
    http: HttpSettings = HttpSettings()
    rootcoord: RootcoordSettings = RootcoordSettings()
    datacoord: DatacoordSettings = DatacoordSettings()
    gc: GcSettings = GcSettings()
    compaction: CompactionSettings = CompactionSettings()
    meta: MetaSettings = MetaSettings()
    cluster: ClusterSettings = ClusterSettings()
    log: LogSettings = LogSettings()
    channels: ChannelsSettings = ChannelsSettings()
    storage: StorageSettings = StorageSettings()
    backpressure: BackpressureSettings = BackpressureSettings()
    rate_limits: RateLimitSettings = RateLimitSettings()
    indexcoord: IndexcoordSettings = IndexcoordSettings()
    imports: ImportsSettings = ImportsSettings()
    function: FunctionSettings = FunctionSettings()
    session: SessionSettings = SessionSettings()
    querynode: QuerynodeSettings = QuerynodeSettings()
    pipeline: PipelineSettings = PipelineSettings()
    metrics: MetricsSettings = MetricsSettings()
    audit: AuditSettings = AuditSettings()
    logging: LoggingSettings = LoggingSettings()

    @field_validator("data_dir", mode="before")
    @classmethod
    def _data_dir_is_named(cls, given: object) -> object:
        if given == "":
            raise ValueError("it is empty: name a directory, or . for the current one")
        return given

    @model_validator(mode="after")
    def _allocations_expire_first(self) -> Self:
        if self.datacoord.assignment_expiration_ms > self.session.ttl_s * 1000:
            raise ValueError(
                f"datacoord.assignment_expiration_ms ({self.datacoord.assignment_expiration_ms}) is longer "
                f"than session.ttl_s ({self.session.ttl_s} s): a proxy that was taken for dead could still "
                "use its allocation in a segment that is flushed without it"
            )
        return self
