"""The results page: method, circumstances, ratios with their targets, every figure, what failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.metrics import percentile
from benchmarks.report.catalog import TABLES, Metric, Table
from benchmarks.report.targets import SUBJECT, TARGETS, Figures, judge
from benchmarks.results import Results, SystemResult

TITLES = {"elanus": "Elanus", "milvus": "Milvus", "milvus-lite": "milvus-lite", "faiss": "faiss, in process"}
COLUMNS = ("elanus", "milvus", "milvus-lite", "faiss")
MISSING = "–"

HEAD = """\
# Benchmarks

*Made from `benchmarks.json` by `python -m benchmarks render benchmarks > docs/benchmarks.md`; the comments
are in `benchmarks-notes.md`.*

Figures of a database mean little alone. This page holds one run, on one machine, of Elanus, of what its
users would otherwise run (the systems named below, from PyPI), and of faiss in the client's own process,
which is what the hardware allows. **Compare columns, not digits**: the machine also does other work.

`make bench` repeats it with the data set that the repository ships, `python -m benchmarks run --data FILE`
with any other. The peers are installed into `.bench/` by the run itself.
"""

LARGE_HEAD = """\
# Benchmarks of {title}

*Made from `{page}-benchmarks.json` by `python -m benchmarks render {page} > docs/{page}-benchmarks.md`; the
comments are in `{page}-benchmarks-notes.md`. `make {page}` measures again.*

A part of [the comparison](benchmarks.md), with a larger set: drawn vectors in clusters, measured in the same
way. Before it is asked anything, a server has been at rest for more than a minute: Milvus merges the segments
of a large set for some minutes after a load, and builds their indexes again.
"""

QUICK = """\
> **A quick run**: one short repeat of every measure. It shows that everything works and is too short to
quote.
"""

METHOD = """\
## How it is measured

- Clients are processes of their own, with the pymilvus release that each server was made for (3.0.2 for
  Elanus and milvus-lite, 2.3.6 for Milvus). Times are taken around the client library's call, so they hold
  its cost too.
- Index: HNSW, M = {index_m}, efConstruction = {index_ef_construction}, L2, top {top_k}. Each system
  searches at the smallest `ef` of one grid with which it reaches the recall named; recall is against exact
  answers.
- A timed search runs for {search_s:g} s, {repeats} time(s); the median of each figure is reported. Searches
  use the default consistency level, Bounded.
- Server CPU is user and system time of the whole process tree, Spark's JVM and workers included.
- Filters keep 0.1 to 99 % of the rows by an integer field that is independent of the vectors.
- *During inserts*: {write_rows_per_s} rows/s go into the searched collection. *During an index build*: the
  index of another collection of {build_rows:,} rows (or all, where there are fewer) is built meanwhile.
- *Strong read*: a query for the one row just written, at Strong consistency; time from the write's
  acknowledgement.
- *Restart*: SIGKILL to every process of the server; then from the start of the new one until nine in ten
  exact neighbors come back.
- faiss builds and answers batches with all cores; its "4 clients" are four processes with a copy each.
- Each system is loaded in turn; after that each question is put to every system before the next question,
  so that figures in one row were taken close together. The servers not being asked are idle meanwhile.
- *Machine speed* is a fixed computation (MB hashed per second by all cores), timed before every measure:
  where it differs between systems, so does what the machine had left for them.
"""


def render_page(results: Results, notes: str | None = None) -> str:
    """The whole page as Markdown.

    Args:
        results: one run.
        notes: Markdown on why targets are missed, included as it is.
    """
    parts = list(_parts(HEAD, results, notes, _verdicts(results)))
    if results.settings["repeats"] == 1:
        parts.insert(1, QUICK)
    parts.append(METHOD.format(**results.settings))
    return "\n".join(parts)


def render_large_page(page: str, title: str, results: Results, notes: str | None = None) -> str:
    """As `render_page`, of a run that asks a part of the questions of a large set.

    Args:
        page: its name for ``render`` and ``make``.
        title: the vectors, in words.
    """
    head = LARGE_HEAD.format(page=page, title=title)
    return "\n".join(_parts(head, results, notes, _verdicts(results, asked_only=True)))


def _parts(head: str, results: Results, notes: str | None, verdicts: str) -> Iterator[str]:
    """The parts of both pages, from the head to the figures."""
    systems = [name for name in COLUMNS if name in results.systems]
    yield from (head, _circumstances(results), verdicts)
    if notes:
        yield "## What falls short, and why\n\n" + notes.strip() + "\n"
    yield "## Every figure\n"
    tables = (_table(table, systems, results.systems) for table in TABLES)
    yield from (table for table in tables if table)
    yield from _roles(_figures(results))
    yield _speeds(results.systems)
    yield from _failures(results.systems)


def _figures(results: Results) -> Figures:
    return {name: one.values for name, one in results.systems.items()}


def _circumstances(results: Results) -> str:
    lines = [f"- {name}: {text}" for name, text in results.circumstances.items()]
    versions = ", ".join(f"{TITLES[name]} {one.version}" for name, one in results.systems.items())
    return "## The run\n\n" + "\n".join([*lines, f"- systems, in the order measured: {versions}"]) + "\n"


def _verdicts(results: Results, *, asked_only: bool = False) -> str:
    """The targets. ``asked_only``: leave out those that the run did not ask about."""
    rows: list[Sequence[str]] = []
    for target in TARGETS:
        verdict = judge(target, _figures(results))
        if asked_only and verdict.reached is None:
            continue
        reached = MISSING if verdict.reached is None else _short(verdict.reached)
        rows.append((target.claim, target.wanted, reached, verdict.text))
    intro = "Ratios are Elanus to the system named, both of this run.\n\n"
    return "## What was expected\n\n" + intro + markdown_table(("", "target", "measured", ""), rows)


def _table(table: Table, systems: Sequence[str], results: Mapping[str, SystemResult]) -> str:
    head = ["", *(TITLES[name] for name in systems)]
    has_milvus = SUBJECT in systems and "milvus" in systems
    if has_milvus:
        head.append("Elanus ÷ Milvus")
    rows = [
        row
        for metric in table.metrics
        if (row := _row(metric, systems, results, ratio=has_milvus)) is not None
    ]
    return f"### {table.title}\n\n" + markdown_table(head, rows) if rows else ""


def _row(
    metric: Metric, systems: Sequence[str], results: Mapping[str, SystemResult], *, ratio: bool
) -> Sequence[str] | None:
    """One metric over all systems; None when no system has it."""
    figures = [results[name].values.get(metric.key) for name in systems]
    if all(figure is None for figure in figures):
        return None
    cells = [MISSING if figure is None else f"{figure:,.{metric.digits}f}" for figure in figures]
    if ratio:
        mine, other = results[SUBJECT].values.get(metric.key), results["milvus"].values.get(metric.key)
        cells.append(f"{mine / other:.2f}" if mine is not None and other else MISSING)
    return [metric.label, *cells]


def _roles(figures: Figures) -> Iterator[str]:
    """Elanus's CPU and memory by process."""
    labels = {metric.key: metric.label for table in TABLES for metric in table.metrics}
    mine = figures.get(SUBJECT, {})
    roles = sorted({key.partition("@")[2] for key in mine if "@" in key})
    keys = [key for key in labels if any(f"{key}@{role}" in mine for role in roles)]
    if keys:
        rows = [[labels[key], *(_short(mine.get(f"{key}@{role}", 0.0)) for role in roles)] for key in keys]
        yield "### Elanus by process\n\n" + markdown_table(["", *roles], rows)


def _speeds(results: Mapping[str, SystemResult]) -> str:
    """The machine's free capacity during the measures of each system."""
    rows = [
        [TITLES[name], *(f"{percentile(one.yardstick, percent):,.0f}" for percent in (0, 50, 100))]
        for name, one in results.items()
        if one.yardstick
    ]
    return "### Machine speed\n\n" + markdown_table(("", "lowest", "median", "highest"), rows)


def _failures(results: Mapping[str, SystemResult]) -> Iterator[str]:
    lines = [
        f"- {TITLES[name]}, {measure}: {reason.splitlines()[0]}"
        for name, one in results.items()
        for measure, reason in one.failures.items()
    ]
    if lines:
        yield "### What could not be measured\n\n" + "\n".join(lines) + "\n"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is left-aligned and whose others are right-aligned."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return (
        "\n".join("| " + " | ".join([*line, *[""] * (len(head) - len(line))]) + " |" for line in lines) + "\n"
    )


def _short(figure: float) -> str:
    """Three significant digits, more where the whole part is longer."""
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"
