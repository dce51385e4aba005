"""The freshness page: medians and their targets, and how they were taken."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.freshness import Freshness, ProxyFigures
from benchmarks.metrics import percentile

STRONG_OVER_EVENTUAL_MS = {1: 3.0, 3: 8.0}
"""By number of proxies: how much longer a strong search may take at the median."""
VISIBLE_MS = 15.0

HEAD = """\
# Freshness

*Made from `freshness.json` by `python -m benchmarks render freshness > docs/freshness.md`;
`make freshness` measures again.*

A strong read sees every write acknowledged before it. Where ticks come every 200 ms, such a read waits for
the next one. Here it asks for one: the proxies report at once, the tick goes into the channels, and the read
is answered when the query node has read it there.
"""

METHOD = """\
## How it is measured

Elanus {version} on {machine}, settings as they come (fsync on), Spark up and idle. One client with a
connection to each proxy; {rows:,} rows of dimension {dim}, none flushed. A turn is: insert one row through
one proxy, search for it through the next one at Eventually; insert another, search for it at Strong. {turns}
turns each. Times are taken around pymilvus' calls. *Visible* is from the beginning of the insert to the end
of the strong search that found its row: it did every time, or the run would have ended.
"""


def render_freshness(found: Freshness) -> str:
    return "\n".join([HEAD, *_results(found), "", _method(found)])


def _results(found: Freshness) -> Iterator[str]:
    yield "| proxies | insert | eventual search | strong search | strong over eventual | insert to visible |"
    yield "|---:|---:|---:|---:|---:|---:|"
    for figures in found.figures:
        cells = [_spread(figures, name) for name in ("insert_ms", "eventual_ms", "strong_ms")]
        over, visible = _over_ms(figures), figures.median_ms("visible_ms")
        most = STRONG_OVER_EVENTUAL_MS[figures.proxies]
        cells.append(f"**{over:.1f} ms** (target {most:g}: {_verdict(over <= most)})")
        cells.append(f"**{visible:.1f} ms** (target {VISIBLE_MS:g}: {_verdict(visible < VISIBLE_MS)})")
        yield f"| {figures.proxies} | {' | '.join(cells)} |"
    yield ""
    yield "Medians; in parentheses the 95th percentile."


def _over_ms(figures: ProxyFigures) -> float:
    return figures.median_ms("strong_ms") - figures.median_ms("eventual_ms")


def _spread(figures: ProxyFigures, name: str) -> str:
    return f"{figures.median_ms(name):.1f} ms ({percentile(figures.values_ms(name), 95):.1f})"


def _verdict(met: bool) -> str:
    return "met" if met else "missed"


def _method(found: Freshness) -> str:
    return METHOD.format(
        version=found.version,
        machine=found.machine,
        rows=found.rows,
        dim=found.dim,
        turns=len(found.figures[0].rounds),
    )
