"""The pipeline's page: every job compared with plain work, flush calls, growth; each with its target."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.pipeline.courses import HNSW, IVF_FLAT, RANGE_ROWS
from benchmarks.pipeline.figures import GROWTH_PASSES, Figures
from benchmarks.pipeline.growth import GrowthPoint
from benchmarks.pipeline.joins import BUFFERS_MB, EF, Joins, K
from benchmarks.pipeline.joins import HNSW as BUILT
from benchmarks.pipeline.places import DELAY_MS, DISK, Turns
from benchmarks.pipeline.places import WORKERS as CLUSTERS
from benchmarks.pipeline.sides import Sides

FLUSH_CALL_S = 1.5
IMPORT_ROWS_PER_S = 150_000
JOIN_SPEED, JOIN_TIMES, JOIN_MEMORY = 0.8, 20.0, 1.1
PLOT = "pipeline-growth.svg"

HEAD = f"""\
# Speed of the data pipeline

*Made from `pipeline-benchmarks.json` by `python -m benchmarks render pipeline >
docs/pipeline-benchmarks.md`; `make pipeline` measures again and draws `{PLOT}`.*

## Jobs compared with plain work

The time of a job's task, and of the same work done by the library alone: the same rows, the same schema, the
same encodings and compression in both. Both run in one process in turns, {{turns}} each after one that does
not count. Times are those of the fastest, the median and the slowest turn. The ratio is that of the medians;
next to it is that of the fastest turns, which other work on the machine disturbs least. Where the two differ,
or a side's turns lie far apart, the disk or other work had a part in it. The output of a task is on stable
storage at its end; so is the plain side's output where the table says *durable*. Spark's own time for a job
and the commit are not in these figures; they are in the flush calls below.
"""

GROWTH = f"""\
## Growth

![Seconds of imports, flushes, compactions and index builds by their rows, and the driver's memory]({PLOT})

Imports, flushes, compactions and index builds of {{least:,}} to {{most:,}} rows of dimension {{dim}}, in
one Spark session on all cores, run as the server runs them. Times are those of the fastest, the median and
the slowest of {GROWTH_PASSES} turns where they were kept, else the median; of HNSW there is one turn. A flush
has one task per {RANGE_ROWS:,} rows. A compaction merges segments of {RANGE_ROWS:,} rows, a tenth of them
deleted, into as few as hold them (`datacoord.segment_size_max_mb` as it comes), and an index is built over
each segment of that size. IVF_FLAT has nlist {IVF_FLAT["nlist"]}; HNSW has M {HNSW["M"]}, efConstruction
{HNSW["efConstruction"]}, and ends earlier for want of time: what a row costs there grows
with the logarithm of its segment's rows, and so no further than the largest segment. *Driver* is the most
memory of its Python and its JVM while the jobs ran, *task* that of one Python worker, which runs the tasks.
"""
IMPORTS = """\
## An import as its caller sees it

{rows:,} rows of dimension {dim} in one Parquet file, imported through a warm server, IVF_FLAT, fsync on.
Times are from the call until the client finds what it waits for: the fastest, the median and the slowest
of {turns}.
"""
WORKERS = """\
## Imports on a Spark cluster

The import job of {rows:,} rows of dimension {dim} in {tasks} tasks, on a standalone cluster on this machine,
whose workers have one core each; the times of the fastest, the median and the slowest of {turns} turns. With
more workers than processors this shows what workers cost, not what they bring: no figure for more than
{processors} of them says how the job would run on as many machines. *Task* is the most memory of one Python
worker.
"""
STORES = f"""\
## Imports and the distance of the object store

One task that imports {{rows:,}} rows of dimension {{dim}}, with the file that it reads and those that it
writes on a disk, in an S3 server on this machine (OpenStack Swift, which takes processor time itself), and
in the same server behind a relay that delays each request by {DELAY_MS} ms; the times of the fastest, the
median and the slowest of {{turns}} turns.
"""
JOINS = """\
## Searches as Spark jobs

{rows:,} vectors of dimension {dim}, drawn with the structure of embeddings, in HNSW indexes (M {M},
efConstruction {efConstruction}), all in the server's files; Spark runs on this machine, on all cores. The
kNN join finds the {k} nearest of each query, with ef {ef}; its time is from the call to the hits, with the
snapshot, Spark's work and the reading of files. faiss alone searches the same graphs with all cores, in one
process that has read them before. Spark's own exact join, `nearestByJoin`, compares few queries with the
rows in its memory. Times are those of the fastest, the median and the slowest turn.
"""
MEMORY = """\
The resident memory of a task of the joins, the most of any, next to its budget: the keys of its segments
with their indexes, or their vectors; a Python worker that has opened none; and {buffers:.0f} MB for a row
group that it reads, queries and hits. The target is at most {limit:g} of the budget.
"""
GROWN = """\
- **{name}**: {times:.0f} times as many rows took {longer:.1f} times as long, a row **{factor:.2f} times**
  as much ({verdict}); the driver had {first_mb:,.0f} MB in the smallest, {last_mb:,.0f} MB in the largest."""

LINEAR = 1.25
"""Growth counts as linear while a row of the largest work costs at most so many times one of the smallest."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A line of the table. ``target``: the least speed where ``by_speed``, else the longest time."""

    name: str
    ours: str
    plain: str
    target: float | None
    by_speed: bool


COMPARISONS = (
    Comparison("flush", "log to Parquet, key statistics", "Arrow stream to Parquet, durable", 0.6, True),
    Comparison(
        "flush narrow", "log to Parquet, key statistics", "Arrow stream to Parquet, durable", 0.6, True
    ),
    Comparison(
        "import", "Parquet to segments by key, key statistics", "Parquet rewritten, durable", None, True
    ),
    Comparison(
        "compaction", "segments merged by key, key statistics", "the same in memory, durable", 2.0, False
    ),
    Comparison("index build", "HNSW from Parquet, durable", "raw faiss from memory to a file", 1.15, False),
)


def render_pipeline(found: Figures) -> str:
    turns = max(len(sides.ours_s) for sides in found.jobs.values())
    parts = [
        HEAD.format(turns=turns),
        *_table(found),
        "",
        *_flush_calls(found),
        *_imports(found),
        *_clusters(found),
        *_stores(found),
        *_joins(found.joins),
        *_growth(found),
        _method(found),
    ]
    return "\n".join(parts)


def _table(found: Figures) -> Iterator[str]:
    yield "| job | rows | the task | plain work | task | plain | ratio |"
    yield "|---|---:|---|---|---:|---:|---:|"
    for line in COMPARISONS:
        sides = found.jobs[line.name]
        rows = f"{sides.rows:,} × {sides.dim}"
        times = f"{_spread_s(sides.ours_s)} | {_spread_s(sides.plain_s)}"
        yield f"| {line.name} | {rows} | {line.ours} | {line.plain} | {times} | {_ratio(line, sides)} |"


def _ratio(line: Comparison, sides: Sides) -> str:
    """Speed as a share of the plain side's, or time as a multiple of it, whichever the target is about."""
    value = f"**{sides.speed:.2f} of the speed**" if line.by_speed else f"**{sides.cost:.2f} times as long**"
    best = sides.speed_at_best if line.by_speed else 1 / sides.speed_at_best
    value += f", {best:.2f} by the fastest turns"
    if line.target is None:
        return value
    met = sides.speed >= line.target if line.by_speed else sides.cost <= line.target
    bound = "at least" if line.by_speed else "at most"
    return f"{value} (target {bound} {line.target:g}: {_verdict(met)})"


def _flush_calls(found: Figures) -> Iterator[str]:
    calls = found.flush_calls
    if not calls.seconds:
        return
    median_s = statistics.median(calls.seconds)
    verdict = _verdict(median_s <= FLUSH_CALL_S)
    yield "## A flush as its caller sees it"
    yield ""
    yield f"{calls.rows:,} rows of dimension {calls.dim} were in Flushed segments **{median_s:.2f} s** after"
    yield f"the call (target {FLUSH_CALL_S:g} s: {verdict}), the median of {len(calls.seconds)};"
    yield f"the fastest took {min(calls.seconds):.2f} s, the slowest {max(calls.seconds):.2f} s. The server's"
    yield "Spark session was warm, fsync on; the client asked for the segments' states every 10 ms."
    yield ""


def _imports(found: Figures) -> Iterator[str]:
    if not found.imports:
        return
    first = next(iter(found.imports.values()))
    yield IMPORTS.format(rows=first.rows, dim=first.dim, turns=len(first.seconds))
    yield "| until | time | rows/s |"
    yield "|---|---:|---:|"
    for until, turns in found.imports.items():
        yield f"| {until} | {_spread_s(turns.seconds)} | {_rate(turns)} |"
    committed = first.rows / statistics.median(first.seconds)
    verdict = _verdict(committed >= IMPORT_ROWS_PER_S)
    yield ""
    yield f"Target for committed segments: {IMPORT_ROWS_PER_S:,} rows/s on two processors: {verdict}."
    yield ""


def _clusters(found: Figures) -> Iterator[str]:
    if not found.workers:
        return
    first = next(iter(found.workers.values()))
    turns, tasks = len(first.seconds), max(CLUSTERS)
    processors = found.machine.partition(" ")[0]
    yield WORKERS.format(rows=first.rows, dim=first.dim, tasks=tasks, turns=turns, processors=processors)
    yield "| workers | time | rows/s | compared with one | task |"
    yield "|---:|---:|---:|---:|---:|"
    for workers, took in found.workers.items():
        times = statistics.median(first.seconds) / statistics.median(took.seconds)
        yield (
            f"| {workers} | {_spread_s(took.seconds)} | {_rate(took)} | {times:.2f} times the speed | "
            f"{took.task_mb:,.0f} MB |"
        )
    yield ""


def _stores(found: Figures) -> Iterator[str]:
    if not found.stores:
        return
    disk = found.stores[DISK]
    yield STORES.format(rows=disk.rows, dim=disk.dim, turns=len(disk.seconds))
    yield "| files | time | rows/s | longer than on the disk |"
    yield "|---|---:|---:|---:|"
    for place, took in found.stores.items():
        longer_s = statistics.median(took.seconds) - statistics.median(disk.seconds)
        yield f"| {place} | {_spread_s(took.seconds)} | {_rate(took)} | {longer_s:.2f} s |"
    yield ""


def _joins(found: Joins | None) -> Iterator[str]:
    if found is None:
        return
    yield JOINS.format(rows=found.rows, dim=found.dim, k=K, ef=EF, **BUILT)
    yield "| | queries | time | queries/s |"
    yield "|---|---:|---:|---:|"
    lines = (
        (f"kNN join, recall {found.recall:.3f}", found.queries, found.join_s),
        ("faiss alone, the same graphs", found.queries, found.faiss_s),
        ("kNN join, exact", found.exact, found.exact_s),
        ("kNN join, few queries", found.few, found.few_join_s),
        ("Spark's `nearestByJoin`, exact", found.few, found.spark_s),
    )
    for name, queries, seconds in lines:
        yield f"| {name} | {queries:,} | {_spread_s(seconds)} | {queries / statistics.median(seconds):,.1f} |"
    join_s, faiss_s = statistics.median(found.join_s), statistics.median(found.faiss_s)
    speed = faiss_s / join_s
    times = statistics.median(found.spark_s) / found.few / (join_s / found.queries)
    yield ""
    verdicts = _verdict(speed >= JOIN_SPEED), _verdict(times >= JOIN_TIMES)
    yield f"The join has **{speed:.2f}** of the throughput of faiss alone (target at least {JOIN_SPEED:g}:"
    yield f"{verdicts[0]}), and **{times:,.0f} times** that of Spark's own join (target at least"
    yield f"{JOIN_TIMES:g}: {verdicts[1]})."
    yield ""
    yield f"`near_duplicates` of all {found.rows:,} rows, of which {found.copies:,} were there twice with"
    yield f"a little noise, took **{found.duplicates_s[0]:.1f} s** and named {found.duplicates:,}."
    yield ""
    if found.memory is not None and found.exact_memory is not None:
        yield MEMORY.format(buffers=BUFFERS_MB, limit=JOIN_MEMORY)
        yield "| | segments | worker without any | budget | most | |"
        yield "|---|---:|---:|---:|---:|---|"
        for name, one in (("kNN join", found.memory), ("kNN join, exact", found.exact_memory)):
            share = one.most_mb / one.budget_mb
            yield (
                f"| {name} | {one.segments_mb:,.0f} MB | {one.empty_mb:,.0f} MB | {one.budget_mb:,.0f} MB | "
                f"{one.most_mb:,.0f} MB | {share:.2f} of the budget: {_verdict(share <= JOIN_MEMORY)} |"
            )
        yield ""


def _rate(took: Turns) -> str:
    """Rows per second, by the median turn."""
    return f"{took.rows / statistics.median(took.seconds):,.0f}"


def _growth(found: Figures) -> Iterator[str]:
    rows = [point.rows for course in found.growth.values() for point in course]
    yield GROWTH.format(least=min(rows), most=max(rows), dim=found.growth_dim)
    yield "| job | rows | time | rows/s | a row | driver | task |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for name, course in found.growth.items():
        for point in course:
            rate = f"{point.rows / point.seconds:,.0f}"
            task = f"{point.task_mb:,.0f} MB" if point.task_mb else "not measured"
            yield (
                f"| {name} | {point.rows:,} | {_point_s(point)} | {rate} | {point.row_us:.2f} µs | "
                f"{point.driver_mb:,.0f} MB | {task} |"
            )
    yield ""
    yield from (_grown(name, course) for name, course in found.growth.items())
    yield ""


def _grown(name: str, course: list[GrowthPoint]) -> str:
    first, last = course[0], course[-1]
    factor = last.row_us / first.row_us
    return GROWN.format(
        name=name[0].upper() + name[1:],
        times=last.rows / first.rows,
        longer=last.seconds / first.seconds,
        factor=factor,
        verdict="linear" if factor <= LINEAR else "more than linear",
        first_mb=first.driver_mb,
        last_mb=last.driver_mb,
    )


def _method(found: Figures) -> str:
    return (
        f"Elanus {found.version} on {found.machine}; the machine did other work as well. Vectors are\n"
        "random: noise, which packs badly.\n"
    )


def _spread_s(seconds: list[float]) -> str:
    """The fastest, the median and the slowest turn."""
    return f"{min(seconds):.2f} / {statistics.median(seconds):.2f} / {max(seconds):.2f} s"


def _point_s(point: GrowthPoint) -> str:
    if not point.fastest_s:
        return f"{point.seconds:.2f} s"
    return _spread_s([point.fastest_s, point.seconds, point.slowest_s])


def _verdict(met: bool) -> str:
    return "met" if met else "missed"
