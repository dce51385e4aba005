"""Every metric of Elanus: name, labels and meaning, in one place.

A metric is declared once below, with the text that both ``/metrics`` and ``docs/metrics.md`` show.
Roles get a `Metrics` through their constructor and never a registry, so a test looks at its own
counts, and two servers in one process do not mix theirs.

``labels(...)`` takes a lock and a dictionary look-up. A hot path asks once and keeps what it got.
Left out on purpose: a label for the collection. Collections are made and dropped by clients, and a
label value that was seen once is kept for good.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector


@dataclass(frozen=True, slots=True)
class Spec:
    """A metric's description. ``name`` is the one on the wire, its unit last."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CounterSpec(Spec):
    """A count that only grows."""

    def create(self, registry: CollectorRegistry) -> Counter:
        return Counter(self.name, self.help, self.labels, registry=registry)


@dataclass(frozen=True, slots=True)
class GaugeSpec(Spec):
    """A value that goes up and down."""

    def create(self, registry: CollectorRegistry) -> Gauge:
        return Gauge(self.name, self.help, self.labels, registry=registry)


@dataclass(frozen=True, slots=True)
class HistogramSpec(Spec):
    """A distribution. ``buckets`` are upper bounds in the metric's unit, ascending."""

    buckets: tuple[float, ...] = ()

    def create(self, registry: CollectorRegistry) -> Histogram:
        return Histogram(self.name, self.help, self.labels, buckets=self.buckets, registry=registry)


_REQUEST_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 60)
_JOB_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)

REQUESTS = CounterSpec(
    "elanus_requests_total", "Requests answered, by RPC and Milvus code (0: success).", ("rpc", "code")
)
REQUEST_SECONDS = HistogramSpec(
    "elanus_request_seconds",
    "Time from a request's arrival to its answer, by RPC.",
    ("rpc",),
    buckets=_REQUEST_BUCKETS_S,
)
ROWS_INSERTED = CounterSpec("elanus_rows_inserted_total", "Rows acknowledged by Insert and Upsert.")
ROWS_DELETED = CounterSpec("elanus_rows_deleted_total", "Primary keys acknowledged by Delete.")
SEARCH_VECTORS = CounterSpec("elanus_search_vectors_total", "Query vectors answered by Search.")
GUARANTEE_WAIT_SECONDS = HistogramSpec(
    "elanus_guarantee_wait_seconds",
    "Time a read waited until its timestamp was served.",
    buckets=_REQUEST_BUCKETS_S,
)
EMBEDDING_SECONDS = HistogramSpec(
    "elanus_embedding_seconds",
    "Time a request waited for a provider to turn texts into vectors, by provider and outcome (ok, failed).",
    ("provider", "outcome"),
    buckets=_REQUEST_BUCKETS_S,
)
RECALL = GaugeSpec(
    "elanus_recall_ratio",
    "Measured recall of live searches, by index type and band of the share of rows that filters leave.",
    ("index", "band"),
)
RECALL_SAMPLES = GaugeSpec(
    "elanus_recall_samples", "Samples that elanus_recall_ratio is the mean of.", ("index", "band")
)
RECALL_MISSED = GaugeSpec(
    "elanus_recall_missed",
    "Kinds of searches (by collection, field, index type and band) whose recall is below the target.",
)
CHANNEL_LAG_MS = GaugeSpec(
    "elanus_channel_lag_ms", "How far a pchannel's last time tick is behind the clock.", ("pchannel",)
)
LATE_MESSAGES = CounterSpec(
    "elanus_late_messages_total",
    "Messages ignored because they are at or below a time tick already in their channel.",
    ("pchannel",),
)
QUARANTINED_ENTRIES = GaugeSpec(
    "elanus_quarantined_entries",
    "Log entries that no reader takes in, because they do not fit their collection's schema. The data "
    "coordinator logs each as `log entry quarantined`.",
)
SEGMENTS = GaugeSpec("elanus_segments", "Segments, by state.", ("state",))
OWNED_VCHANNELS = GaugeSpec(
    "elanus_owned_vchannels", "Vchannels, by the id of the data node that owns them; 0: none does.", ("node",)
)
GROWING_BYTES = GaugeSpec("elanus_growing_bytes", "Growing data held in memory.")
LOOP_LAG_SECONDS = HistogramSpec(
    "elanus_loop_lag_seconds",
    "How late a timer of 50 ms fires on the event loop of the process, which all its roles share.",
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5),
)
LOOP_LAG_MAX_SECONDS = GaugeSpec(
    "elanus_loop_lag_max_seconds",
    "The longest delay of the event loop in the last 30 to 60 seconds.",
)
GC_WAITING_BYTES = GaugeSpec(
    "elanus_gc_waiting_bytes", "Size of dropped segments whose files have not been collected yet."
)
GC_RECLAIMED_BYTES = GaugeSpec(
    "elanus_gc_reclaimed_bytes",
    "Bytes that garbage collection deleted since the data coordinator started.",
)
LOG_BYTES = GaugeSpec("elanus_log_bytes", "Size of the message log on disk.")
WRITES_HELD_BACK = CounterSpec(
    "elanus_writes_held_back_total", "Writes slowed, turned away or refused by back-pressure.", ("action",)
)
SERVING_READS = CounterSpec(
    "elanus_serving_reads_total",
    "Searches and queries that the further serving processes answered (proxy.processes).",
)
AUDIT_RECORDS_LOST = CounterSpec(
    "elanus_audit_records_lost_total", "Audit records lost: the writer was behind, or its disk failed."
)
RESOURCE_GROUPS = GaugeSpec("elanus_resource_groups", "Resource groups, the default one among them.")
MISSING_NODES = GaugeSpec(
    "elanus_resource_group_missing_nodes",
    "Query nodes that all resource groups together lack for their capacity.",
)
PIPELINE_UP = GaugeSpec("elanus_pipeline_up", "1 while the data node is up and takes orders.")
SPARK_AWAKE = GaugeSpec(
    "elanus_spark_awake",
    "1 while the Spark of a standalone server runs; without jobs it sleeps (pipeline.idle_stop_s).",
)
PIPELINE_RESTARTS = CounterSpec(
    "elanus_pipeline_restarts_total", "Times the data node was started again because its Spark had died."
)
JOBS = CounterSpec("elanus_jobs_total", "Spark jobs ended, by kind and outcome.", ("kind", "outcome"))
JOBS_RUNNING = GaugeSpec("elanus_jobs_running", "Spark jobs that run now, by kind.", ("kind",))
JOB_ROWS = CounterSpec("elanus_job_rows_total", "Rows written by Spark jobs, by kind.", ("kind",))
JOB_BYTES = CounterSpec("elanus_job_bytes_total", "Bytes written by Spark jobs, by kind.", ("kind",))
JOB_SECONDS = HistogramSpec(
    "elanus_job_seconds",
    "Time from a Spark job's start to its end, by kind.",
    ("kind",),
    buckets=_JOB_BUCKETS_S,
)

SPECS: tuple[Spec, ...] = (
    REQUESTS,
    REQUEST_SECONDS,
    ROWS_INSERTED,
    ROWS_DELETED,
    SEARCH_VECTORS,
    GUARANTEE_WAIT_SECONDS,
    EMBEDDING_SECONDS,
    RECALL,
    RECALL_SAMPLES,
    RECALL_MISSED,
    CHANNEL_LAG_MS,
    LATE_MESSAGES,
    QUARANTINED_ENTRIES,
    SEGMENTS,
    OWNED_VCHANNELS,
    GROWING_BYTES,
    LOOP_LAG_SECONDS,
    LOOP_LAG_MAX_SECONDS,
    GC_WAITING_BYTES,
    GC_RECLAIMED_BYTES,
    LOG_BYTES,
    WRITES_HELD_BACK,
    SERVING_READS,
    AUDIT_RECORDS_LOST,
    RESOURCE_GROUPS,
    MISSING_NODES,
    PIPELINE_UP,
    SPARK_AWAKE,
    PIPELINE_RESTARTS,
    JOBS,
    JOBS_RUNNING,
    JOB_ROWS,
    JOB_BYTES,
    JOB_SECONDS,
)


class Metrics:
    """The metrics of one process, and the registry that ``/metrics`` prints."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry(auto_describe=True)  # the names of the process, too
        ProcessCollector(namespace="elanus", registry=registry)
        self.requests = REQUESTS.create(registry)
        self.request_seconds = REQUEST_SECONDS.create(registry)
        self.rows_inserted = ROWS_INSERTED.create(registry)
        self.rows_deleted = ROWS_DELETED.create(registry)
        self.search_vectors = SEARCH_VECTORS.create(registry)
        self.guarantee_wait_seconds = GUARANTEE_WAIT_SECONDS.create(registry)
        self.embedding_seconds = EMBEDDING_SECONDS.create(registry)
        self.recall = RECALL.create(registry)
        self.recall_samples = RECALL_SAMPLES.create(registry)
        self.recall_missed = RECALL_MISSED.create(registry)
        self.channel_lag_ms = CHANNEL_LAG_MS.create(registry)
        self.late_messages = LATE_MESSAGES.create(registry)
        self.quarantined_entries = QUARANTINED_ENTRIES.create(registry)
        self.segments = SEGMENTS.create(registry)
        self.owned_vchannels = OWNED_VCHANNELS.create(registry)
        self.growing_bytes = GROWING_BYTES.create(registry)
        self.loop_lag_seconds = LOOP_LAG_SECONDS.create(registry)
        self.loop_lag_max_seconds = LOOP_LAG_MAX_SECONDS.create(registry)
        self.gc_waiting_bytes = GC_WAITING_BYTES.create(registry)
        self.gc_reclaimed_bytes = GC_RECLAIMED_BYTES.create(registry)
        self.log_bytes = LOG_BYTES.create(registry)
        self.serving_reads = SERVING_READS.create(registry)
        self.audit_records_lost = AUDIT_RECORDS_LOST.create(registry)
        self.writes_held_back = WRITES_HELD_BACK.create(registry)
        self.resource_groups = RESOURCE_GROUPS.create(registry)
        self.missing_nodes = MISSING_NODES.create(registry)
        self.pipeline_up = PIPELINE_UP.create(registry)
        self.spark_awake = SPARK_AWAKE.create(registry)
        self.pipeline_restarts = PIPELINE_RESTARTS.create(registry)
        self.jobs = JOBS.create(registry)
        self.jobs_running = JOBS_RUNNING.create(registry)
        self.job_rows = JOB_ROWS.create(registry)
        self.job_bytes = JOB_BYTES.create(registry)
        self.job_seconds = JOB_SECONDS.create(registry)


_PAGE_INTRODUCTION = """\
# Metrics

<!-- Written by `make docs` from `src/elanus/metrics.py`: edit that file, not this one. -->

Served in Prometheus' text format at `http://127.0.0.1:9091/metrics` (settings `metrics.*`). In addition
to those below there are the process's own (`elanus_process_resident_memory_bytes`,
`elanus_process_cpu_seconds_total` and the like), for the online process. A collection is never a
label: its clients choose it, and the number of label values would have no bound.
"""

_KINDS = {CounterSpec: "counter", GaugeSpec: "gauge", HistogramSpec: "histogram"}


def markdown() -> str:
    """The metrics page, ``docs/metrics.md``."""
    return _PAGE_INTRODUCTION + "".join(line for spec in SPECS for line in _describe(spec))


def _describe(spec: Spec) -> Iterator[str]:
    yield f"\n## {spec.name}\n\n{spec.help}\n\n{_KINDS[type(spec)]}"
    if spec.labels:
        yield " · labels " + ", ".join(f"`{label}`" for label in spec.labels)
    if isinstance(spec, HistogramSpec):
        yield " · buckets " + ", ".join(f"{bound:g}" for bound in spec.buckets)
    yield "\n"
