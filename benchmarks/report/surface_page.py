"""The page of full-text, hybrid, narrow and on-disk searches."""

from __future__ import annotations

from benchmarks.report.page import markdown_table
from benchmarks.surface.figures import Line, Surface

TITLES = {
    "text": "Full-text and hybrid search",
    "narrow": "Half-precision and 8-bit vectors",
    "scalar": "Indexes of scalars",
    "growing": "Rows that are not flushed yet",
    "disk": "The index on disk",
}
HEAD = """\
# Full text, narrow vectors, the index on disk

*Made by `make surface` (`python -m benchmarks surface`), which measures and writes this page and
`surface-benchmarks.json`; `make surface ARGS="--only text"` measures one part again, and keeps the others.*

Unless it says otherwise, each part has a server of its own, with settings as they come: rows are imported
from one Parquet file, indexed, loaded, and searched by one client over gRPC. Searches that are compared take
turns; a figure is the median over the rounds of the median of each, with the lowest and highest round. Where
the load was above the number of processors, times are mostly those of other programs: ratios, recall and
memory count.
"""


def render_surface(found: Surface) -> str:
    """The whole page as Markdown."""
    parts = [HEAD, f"Elanus {found.version} on {found.machine}.\n"]
    for name, part in found.parts.items():
        parts += [
            f"## {TITLES[name]}\n",
            f"{part.about} Load before it: {part.load_average:g}.\n",
        ]
        parts.append(
            markdown_table(("", "median", "spread", "wanted", ""), [_row(line) for line in part.lines])
        )
    return "\n".join(parts)


def _row(line: Line) -> tuple[str, ...]:
    spread = "" if line.low == line.high else f"{_short(line.low)} to {_short(line.high)}"
    verdict = "" if not line.wanted else "pass" if line.is_met else "**falls short**"
    return line.label, _short(line.middle), spread, line.wanted, verdict


def _short(figure: float) -> str:
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"
