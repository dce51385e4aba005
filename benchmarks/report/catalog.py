"""Every metric that the page shows, in order: its key in the results, and how it is named and rounded."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.settings import SELECTIVITIES_PERCENT


@dataclass(frozen=True)
class Metric:
    """One row of a table.

    Attributes:
        key: in the results.
        label: with its unit.
        digits: decimals shown.
    """

    key: str
    label: str
    digits: int = 0


@dataclass(frozen=True)
class Table:
    """Metrics that are read together."""

    title: str
    metrics: tuple[Metric, ...]


def _search(key: str, label: str) -> tuple[Metric, ...]:
    return (
        Metric(f"{key}.qps", f"{label}: QPS"),
        Metric(f"{key}.p50_ms", f"{label}: p50, ms", 2),
        Metric(f"{key}.p99_ms", f"{label}: p99, ms", 2),
        Metric(f"{key}.cpu_ms", f"{label}: server CPU per search, ms", 2),
    )


def _chosen(key: str, label: str) -> tuple[Metric, ...]:
    return (Metric(f"{key}.ef", f"{label}: ef"), Metric(f"{key}.recall", f"{label}: recall@10", 3))


def _filter(percent: float) -> tuple[Metric, ...]:
    key, label = f"filter{percent:g}", f"{percent:g} % of rows"
    return (
        *_chosen(key, label),
        Metric(f"{key}.qps", f"{label}: QPS"),
        Metric(f"{key}.p50_ms", f"{label}: p50, ms", 2),
        Metric(f"{key}.cpu_ms", f"{label}: server CPU per search, ms", 2),
    )


TABLES: tuple[Table, ...] = (
    Table(
        "Getting data in",
        (
            Metric("insert.rows_per_s", "insert to acknowledgement, rows/s"),
            Metric("insert.cpu_ms_per_1000_rows", "server CPU per 1000 rows, ms"),
            Metric("insert.client_cpu_ms_per_1000_rows", "client CPU per 1000 rows, ms"),
            Metric("writers.rows_per_s", "4 clients at once: rows/s"),
            Metric("writers.cpu_ms_per_1000_rows", "4 clients at once: server CPU per 1000 rows, ms"),
            Metric("writers.client_cpu_ms_per_1000_rows", "4 clients at once: client CPU per 1000 rows, ms"),
            Metric("build.flush_s", "flush, s", 1),
            Metric("build.index_s", "HNSW build, s", 1),
            Metric("build.load_s", "load, s", 1),
            Metric("build.settle_s", "until served from sealed segments, s", 1),
            Metric("build.total_s", "flush + HNSW + load, s", 1),
            Metric("build.cpu_s", "server CPU of that, s", 1),
        ),
    ),
    Table(
        "Search at rest",
        (
            *_chosen("search95", "recall ≥ 0.95"),
            *_search("search95", "1 client, recall ≥ 0.95"),
            *_search("clients", "4 clients, recall ≥ 0.95"),
            *_chosen("search99", "recall ≥ 0.99"),
            *_search("search99", "1 client, recall ≥ 0.99"),
            Metric("batch.queries_per_s", "batches of 100: queries/s"),
            Metric("batch.p50_ms", "batches of 100: p50 of a batch, ms", 1),
            Metric("batch.cpu_ms_per_query", "batches of 100: server CPU per query, ms", 2),
        ),
    ),
    Table(
        "Search under a filter",
        tuple(metric for percent in SELECTIVITIES_PERCENT for metric in _filter(percent)),
    ),
    Table(
        "Search while other things happen",
        (
            Metric("inserting.qps", "during inserts: QPS"),
            Metric("inserting.p50_ms", "during inserts: p50, ms", 2),
            Metric("inserting.p99_ms", "during inserts: p99, ms", 2),
            Metric("inserting.rows_per_s", "during inserts: rows/s (800 wanted)"),
            Metric("building.qps", "during an index build: QPS"),
            Metric("building.p50_ms", "during an index build: p50, ms", 2),
            Metric("building.p99_ms", "during an index build: p99, ms", 2),
            Metric("building.index_s", "during an index build: that build, s", 1),
        ),
    ),
    Table(
        "Freshness",
        (
            Metric("after_insert.read_p50_ms", "strong read after an insert: p50, ms", 1),
            Metric("after_insert.read_p99_ms", "strong read after an insert: p99, ms", 1),
            Metric("after_insert.wrong", "strong read after an insert: rows missed"),
            Metric("after_delete.read_p50_ms", "strong read after a delete: p50, ms", 1),
            Metric("after_delete.read_p99_ms", "strong read after a delete: p99, ms", 1),
            Metric("after_delete.wrong", "strong read after a delete: rows still seen"),
        ),
    ),
    Table(
        "Running it",
        (
            Metric("start.ready_s", "first start to first answer, s", 1),
            Metric("restart.searchable_s", "killed, started, answers right again, s", 1),
            Metric("restart.client_loaded", "… the client had to load again (1 = yes)"),
            Metric("idle.cpu_percent", "idle CPU, % of one core", 1),
            Metric("start.rss_mb", "resident memory, empty, MB"),
            Metric("loaded.rss_mb", "resident memory, loaded, MB"),
            Metric("loaded.disk_mb", "disk, loaded, MB"),
        ),
    ),
)
