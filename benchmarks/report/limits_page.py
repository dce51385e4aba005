"""The page of limits: what gave, and what one more cost before."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from benchmarks.limits.figures import Dimension, End, Limits, Step, Trickle

HEAD = """\
# Limits

*Made by `make limits` (`python -m benchmarks limits`), which measures and writes this page and `limits.json`;
`make limits ARGS="--only collections"` measures one dimension again, and keeps the others.*

One dimension after the other grows in steps, on a standalone server of its own, until something gives, the
last step is reached, or the time for it is over. After each step the server is left alone and looked at.
"""

METHOD = """\
## How it is measured

Elanus {version} on {machine}.
Each dimension has a fresh server (`elanus serve`, Spark included, fsync on, settings as they come unless
its section names others), and one client on the same machine that adds one unit after the other.

- *One more*: the mean time of those added since the step before, as the client sees it.
- *Idle*: processor time while nobody calls the server, as a share of one core: of the online process, and in
  parentheses of all processes, Spark included.
- *Memory* and *open files*: of the online process.
- *Restart*: from the start of a new server on the same data to its first right answer.
"""

ABOUT = {
    "collections": "Empty collections that are not loaded. Restart: until the last one is described.",
    "loaded collections": (
        "Collections of one shard with an index, created and loaded one after the other; *one more* is all "
        "of it. Restart: until a strong count of the last one is answered."
    ),
    "vchannels": "The shards of loaded collections with 16 each. *One more* is a sixteenth of a collection.",
    "sealed segments": (
        "Segments of 20 rows in one loaded collection, compaction off. They are written while the server is "
        "stopped, with its own functions for insert logs, stats logs, manifests and records: real flushes of "
        "as many would take hours. Restart: until a strong count has all rows. *One more*: the time of that "
        "restart, by segment. Each call is the second of its kind."
    ),
    "deletes": (
        "Deletes of 10,000 keys a call. No row has these keys; one segment of 10,000 rows is loaded. They "
        "are flushed at each step, and all are within retention. Those beyond ten million are written while "
        "the server is stopped, as delta logs of five million. Restart: until a strong count is right."
    ),
    "partitions": (
        "Partitions of one loaded collection, under `ulimit -n 1024` (soft and hard), compaction off. The "
        "default partition is one more. At each step every partition gets a row, and a flush writes them "
        "all: a segment for each."
    ),
    "connections": "Clients that connect, make a call, and stay; at each step all of them make a call again.",
}

_WIDTH = 110
COLUMNS = ("count", "one more", "idle", "memory", "open files", "restart")


def render_limits(found: Limits) -> str:
    return "\n".join(
        [
            HEAD,
            *_summary(found),
            "",
            *(line for name in found.dimensions for line in _section(found.dimensions[name])),
            METHOD.format(version=found.version, machine=found.machine),
        ]
    )


def verdict(dimension: Dimension) -> str:
    """How the dimension ended, in words."""
    match dimension.end:
        case End.GAVE:
            return f"gave at {dimension.at:,}"
        case End.BOUND:
            return f"did not give by {dimension.at:,}"
        case End.TIME:
            return f"did not give by {dimension.at:,}, when its time was over"
        case End.INTERRUPTED:
            return f"did not give by {dimension.at:,}, when the run was interrupted"


def _summary(found: Limits) -> Iterator[str]:
    yield "| dimension | | one more, first and last step | idle | restart |"
    yield "|---|---|---:|---:|---:|"
    for dimension in found.dimensions.values():
        cells = [dimension.name, verdict(dimension)]
        if dimension.steps:
            first, last = dimension.steps[0], dimension.steps[-1]
            cells.append(f"{_ms(first.one_more_ms)}, {_ms(last.one_more_ms)}")
            cells += [_idle(last), _restart(last)]
        else:
            cells += ["", "", ""]
        yield f"| {' | '.join(cells)} |"


def _section(dimension: Dimension) -> Iterator[str]:
    yield f"## {dimension.name[0].upper()}{dimension.name[1:]}"
    yield ""
    about = ABOUT.get(dimension.name.partition(" with ")[0], "")
    if about:
        yield from textwrap.wrap(about, _WIDTH)
        yield ""
    if dimension.steps:
        yield from _table(dimension)
        yield ""
    yield f"**{verdict(dimension).capitalize()}.**"
    if dimension.said:
        yield ""
        yield "The user sees:"
        yield ""
        yield "```"
        yield dimension.said.strip()
        yield "```"
    yield ""
    if dimension.trickle is not None:
        yield _trickle(dimension.trickle)
        yield ""


def _table(dimension: Dimension) -> Iterator[str]:
    more = list(dimension.steps[-1].look.more)
    headings = [*COLUMNS, *more]
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---:|' * len(headings)}"
    for step in dimension.steps:
        look = step.look
        cells = [
            f"{step.count:,}",
            _ms(step.one_more_ms),
            _idle(step),
            f"{look.rss_mb:,.0f} MB",
            f"{look.open_files:,}",
            _restart(step),
            *(look.more.get(heading, "") for heading in more),
        ]
        yield f"| {' | '.join(cells)} |"


def _trickle(found: Trickle) -> str:
    refused = f"{found.refused:,} were refused" if found.refused else "none was refused"
    text = textwrap.fill(
        f"Then a client wrote single rows into all {found.collections:,} collections in turn for "
        f"{found.seconds:.0f} s: {found.rows:,} rows, {refused}. A write took {_ms(found.median_ms)} at the "
        f"median, {_ms(found.p99_ms)} at the 99th percentile and {_ms(found.longest_ms)} at most. The server "
        f"used {found.cpu_percent:.0f} % of a core and held {found.growing_mb:.1f} MB of growing data at the "
        "end.",
        _WIDTH,
    )
    return f"{text}\n\n```\n{found.said.strip()}\n```" if found.said else text


def _ms(value: float) -> str:
    return f"{value:.1f} ms" if value >= 1 else f"{value:.3f} ms"


def _idle(step: Step) -> str:
    return f"{step.look.idle_percent:.1f} % ({step.look.idle_all_percent:.1f} %)"


def _restart(step: Step) -> str:
    return "" if step.look.restart_s is None else f"{step.look.restart_s:.1f} s"
