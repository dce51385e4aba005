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

from pydantic import Field, model_validator

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
    """Proxies of this server, each on a port of its own: the first on `port`, the others on those that
    follow. Each has its own threads and task queues; clients may talk to any of them."""
    processes: int = Field(default=1, ge=0, le=64)
    """Processes of `elanus serve` that answer searches and queries, the main one included. The further ones
    listen on `port` too, each with a copy of what is loaded, and pass on everything else
    (docs/serving-processes.md). 0: one for every two processors. In a cluster, start more processes with the
    roles proxy and querynode instead."""
    workers: int = Field(default=32, ge=1, le=1024)
    """Threads that answer requests, which is how many are in work at once. Short reads need none of them
    where `serving` is `loop`."""
    serving: Literal["loop", "grpc"] = "loop"
    """The gRPC server. `loop`: reads of a kind that took less than a millisecond so far are answered by the
    thread that receives them, everything else by the `workers`; a call costs about half the processor
    time. It is tried out at the start, and needs the release of grpcio that Elanus requires: otherwise a
    warning is logged and `grpc` serves. `grpc`: grpcio's own server, where the `workers` answer
    everything."""
    connections_max: int = Field(default=0, ge=0, le=1_000_000)
    """Connections of clients. A further one is closed at once, and its client gets the gRPC status
    UNAVAILABLE (`Socket closed`). Each takes one of the open files of the process (`ulimit -n`). 0 stands for
    three quarters of those that it may have, divided by `count`."""
    time_tick_interval_ms: int = Field(default=200, ge=10, le=10_000)
    """How often the proxy reports, per pchannel, up to which timestamp its writes are finished. A
    strong read does not wait for it: it asks for a report. A pchannel without writes is ticked once a second,
    or every half of `graceful_time_ms` where that is less."""
    max_task_num: int = Field(default=1024, ge=1, le=65_536)
    """Unfinished tasks that each of the three task queues holds before requests are refused."""
    message_max_mb: int = Field(default=64, ge=1, le=512)
    """The largest request that a client may send. A larger one is refused before it is decoded, with the gRPC
    status RESOURCE_EXHAUSTED and the name of this setting: insert fewer rows at a time, or use
    `elanus import`. gRPC itself refuses requests of more than twice this size, and those of more than 512 MB.
    Each of the `workers` may hold that much."""
    graceful_time_ms: int = Field(default=5000, ge=0, le=3_600_000)
    """How far a read with Bounded consistency may lie behind the newest write."""
    read_timeout_s: float = Field(default=60.0, gt=0, le=3600)
    """How long a search or query without a deadline of its own waits for its timestamp to be served."""
    search_hits_max: int = Field(default=4_000_000, ge=1)
    """Hits that one search may ask for: its vectors times the sum of limit and offset; the searches of a
    hybrid search together. A grouping search also ranks at most as many rows at a time to find its groups. A
    hit takes about 40 bytes of memory while it is answered, its output fields not counted."""
    answer_max_mb: int = Field(default=256, ge=1, le=500)
    """The output fields of one search or query together. A larger answer is refused, and its vectors are not
    even fetched."""
    segment_filter_ratio: float = Field(default=0.0, ge=0, le=1000)
    """Searches of collections that were clustered by the searched vector look into as many of the nearest
    clusters as the square root of their number times this, in each shard and partition; 0: into all that may
    hold a hit. They lose hits by it. The collection property and the search parameter of the same name
    come first."""
    slow_request_ms: int = Field(default=1000, ge=0, le=3_600_000)
    """Searches and queries that take longer are kept, the last hundred of each process (`elanus slow`), and
    logged, one a second at most. For a minute after one, those that follow are kept with their explanation.
    0: none are kept."""
    delete_step_keys_max: int = Field(default=1_000_000, ge=1, le=10_000_000)
    """Keys that a delete by filter reads and deletes at a time. If more rows match, the delete has several
    steps (docs/consistency.md)."""

    @model_validator(mode="after")
    def _ports_exist(self) -> Self:
        if self.port and self.port + self.count - 1 > PORT_MAX:
            raise ValueError(
                f"count ({self.count}) proxies from port {self.port} on need ports above {PORT_MAX}: "
                "choose a lower port, or 0 for free ones"
            )
        return self

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
    """Physical channels that the vchannels of all collections are spread over. Existing collections
    keep theirs when it changes."""
    tso_window_ms: int = Field(default=3000, ge=100, le=60_000)
    """How far ahead of use the timestamp oracle persists its upper bound. After a crash, timestamps
    go on above that bound."""
    tso_update_ms: int = Field(default=50, ge=1, le=1000)
    """How often the oracle moves its physical part to the wall clock."""
    users_max: int = Field(default=100, ge=1, le=10_000)
    """Users that may exist, root included."""
    roles_max: int = Field(default=10, ge=2, le=1000)
    """Roles that may exist, admin and public included."""


class DatacoordSettings(Section):
    """Segment allocation, sealing and flush."""

    segment_size_max_mb: int = Field(default=512, ge=1, le=16_384)
    """The size that a segment is planned for, counted over its rows in memory."""
    seal_proportion: float = Field(default=0.75, gt=0, le=1)
    """A segment is sealed when it has reached this part of its planned size."""
    seal_age_s: float = Field(default=86_400, gt=0)
    """A segment with rows is sealed at this age, however small."""
    seal_idle_s: float = Field(default=600, gt=0)
    """A segment with rows is sealed when it got no new ones for this long."""
    assignment_expiration_ms: int = Field(default=2000, ge=100, le=60_000)
    """How long a proxy may use a segment allocation."""
    retention_s: float = Field(default=432_000, ge=0)
    """How long deleted and expired rows are kept for reads of the past. A read pinned to an older moment
    (time travel, a page of an iterator) is refused; 0 refuses all but reads of the present."""
    log_hold_s: float = Field(default=600, ge=0)
    """How long the log keeps entries that are in binlogs for a query node that has yet to read them and makes
    no progress. After that the node loads the collections of that part of the log again."""
    allocation_rows_min: int = Field(default=1000, ge=1, le=1_000_000)
    """The minimum of rows that a proxy requests as a segment allocation, so that small inserts seldom do."""
    jobs_max: int = Field(default=1000, ge=1, le=100_000)
    """Ended Spark jobs that the job ledger keeps; the oldest are forgotten first."""
    jobs_age_max_s: float = Field(default=604_800, gt=0)
    """How long an ended Spark job stays in the job ledger."""


class GcSettings(Section):
    """Garbage collection: files of what was dropped or superseded, and of jobs that never committed."""

    enabled: bool = True
    """Whether it runs by itself. `elanus gc` runs it in any case."""
    interval_s: float = Field(default=3600, gt=0)
    """How often it runs."""
    drop_tolerance_s: float = Field(default=86_400, ge=0)
    """How long files of dropped segments (by a drop of their partition or collection, or because
    compaction replaced them) are kept. Segments that a query node still reads are kept longer."""
    missing_tolerance_s: float = Field(default=86_400, ge=0)
    """How long objects that nothing refers to are kept: superseded manifests, and what jobs left that
    failed or ran twice. With 0 they go as soon as no job can commit them any more."""
    commit_deadline_s: float = Field(default=21_600, gt=0)
    """How long a job may take from its beginning to its commit, which is refused afterwards. Shorter than
    `missing_tolerance_s`, unless that is 0."""
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
    """Whether segments are compacted without anybody asking. A client's request is carried out anyway."""
    interval_s: float = Field(default=60, ge=1, le=86_400)
    """How often all segments are looked at, in addition to the looks after each flush."""
    timeout_s: float = Field(default=300, ge=1, le=86_400)
    """How long one compaction may take from its order to its commit, waiting for a free slot of Spark
    included (the reference allows 60 s). One that takes longer is given up and planned again."""
    clustering_timeout_s: float = Field(default=7200, ge=1, le=86_400)
    """How long a compaction by a clustering key may take: it rewrites a whole partition of a shard. Not more
    than `gc.commit_deadline_s`."""
    orders_max: int = Field(default=0, ge=0, le=1000)
    """The most compactions that a data node is given at a time. 0: as many as its Spark has cores for, with
    one left to flushes, also when workers join or leave; on one machine four at most. They share the cores
    with index builds, and the wait for one counts as part of `compaction.timeout_s`."""
    plans_max: int = Field(default=100, ge=1, le=10_000)
    """Compactions that are planned or in work at a time."""
    deleted_ratio: float = Field(default=0.2, gt=0, le=1)
    """A segment is rewritten when this part of its rows is deleted or expired."""
    deleted_mb: int = Field(default=10, ge=1, le=16_384)
    """A segment is rewritten when the deletes that concern it take more than this in delta logs."""
    merge_segments_min: int = Field(default=10, ge=2, le=10_000)
    """Segments below half the planned size are merged when a partition has this many of them on one
    vchannel. When a client asks, two are enough."""
    merge_delta_logs_min: int = Field(default=16, ge=2, le=10_000)
    """Small delta logs of a vchannel are merged when it has this many of them."""


class RateLimitSettings(Section):
    """The most that clients may ask of all proxies and collections together in a second; 0: any amount. Each
    proxy's share follows the demand of its clients. A collection's own limits are its properties
    (docs/rate-limits.md). Requests over a limit get a rate limit error, which Milvus clients answer by trying
    again later."""

    insert_max_mb_per_s: float = Field(default=0, ge=0)
    """The rows that are inserted, as they are in memory."""
    upsert_max_mb_per_s: float = Field(default=0, ge=0)
    """The rows that are upserted, as they are in memory."""
    delete_max_mb_per_s: float = Field(default=0, ge=0)
    """The primary keys that are deleted."""
    search_max_vectors_per_s: float = Field(default=0, ge=0)
    """The query vectors of searches; those of a hybrid search count once for each of its searches."""
    query_max_per_s: float = Field(default=0, ge=0)
    """The queries."""
    disk_max_mb: int = Field(default=0, ge=0)
    """The most that the files of all collections may take, in MB and not a second. Further rows are refused.
    The limits of a collection and of a database are their properties."""


class BackpressureSettings(Section):
    """When writes are slowed, and when they are refused. Reads and deletes of old data go on."""

    growing_soft_mb: int = Field(default=1024, ge=1)
    """Growing data in the memory of a query node above which its largest segments are sealed and flushed, and
    writes are slowed. A collection that has no more than its equal part of it is not slowed."""
    growing_hard_mb: int = Field(default=2048, ge=1)
    """Growing data in the memory of a query node above which writes are refused with a memory error. The last
    eighth of the room above `growing_soft_mb` is for collections with no more than their equal part of
    this. A standalone server lowers it to half of what `pipeline.driver_memory_mb` leaves of its memory
    (of the machine, the container or the systemd unit) and the soft limit to half of that, and logs it."""
    delayed_writers_max: int = Field(default=0, ge=0, le=1024)
    """How many writes of a proxy may be slowed at a time: each holds one of `proxy.workers`. Further ones are
    turned away with a rate limit error, which Milvus clients answer by trying again later. 0 stands for a
    quarter of `proxy.workers`."""
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
    """Rows that one task of an import holds in memory, and so the largest segments it writes, all shards
    together. As many tasks run at once as Spark has slots."""
    at_once: int = Field(default=4, ge=1, le=64)
    """Imports that run at a time. They share Spark's slots fairly: a short one need not wait for a long
    one."""
    timeout_s: float = Field(default=86_400, gt=0)
    """How long an import may take from its first try on, the wait for slots of Spark and restarts of any
    process included."""
    tasks_max: int = Field(default=1000, ge=1, le=100_000)
    """Imports that may wait for their turn before further ones are refused."""
    retention_s: float = Field(default=86_400, gt=0)
    """How long an import that has ended can be asked about."""
    write_retention_s: float = Field(default=2_592_000, gt=0)
    """How long the name of a write is remembered after its commit, 30 days: repeated within that time it adds
    nothing. The last batch of a streaming query is remembered as long as the collection exists."""


class SessionSettings(Section):
    """How nodes know of each other: each has a session in the metadata, under a lease."""

    ttl_s: int = Field(default=5, ge=2, le=60)
    """How long a node that does not renew its session counts as alive. After that ticks go on without
    it, and another coordinator takes its place; what it still does is not acknowledged, and it joins again
    under a new id. Short: a death is noticed soon. Long: a pause of the machine is survived."""


class MetricsSettings(Section):
    """The HTTP port for Prometheus, health checks and `elanus status`."""

    enabled: bool = True
    """Whether the port is opened. `elanus status` needs it."""
    host: Host = "127.0.0.1"
    """The address to listen on. Roles can be restarted from loopback only, whatever stands here."""
    port: Port = 9091
    """The port to listen on; 0 takes a free one, which the server's announcement in the data
    directory names."""


class LoggingSettings(Section):
    """The server's own messages, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "warning"
    """The least severe messages shown."""
    format: Literal["auto", "console", "json"] = "auto"
    """`console` is for people, `json` has one object per line, `auto` chooses by whether standard
    error is a terminal."""


class Settings(Section):
    """All settings of one server. Its fields are the top level of the YAML file."""

    data_dir: Path = Path("elanus-data")
    """The directory that holds everything the server keeps. One server at a time uses it."""
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

    @model_validator(mode="after")
    def _allocations_expire_first(self) -> Self:
        if self.datacoord.assignment_expiration_ms > self.session.ttl_s * 1000:
            raise ValueError(
                f"datacoord.assignment_expiration_ms ({self.datacoord.assignment_expiration_ms}) is longer "
                f"than session.ttl_s ({self.session.ttl_s} s): a proxy that was taken for dead could still "
                "use its allocation in a segment that is flushed without it"
            )
        return self
