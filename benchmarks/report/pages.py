"""Every page that is made from the figures of a run: where those are, and how they become Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from benchmarks.freshness import Freshness
from benchmarks.limits.figures import Limits
from benchmarks.pipeline.figures import Figures
from benchmarks.report.freshness_page import render_freshness
from benchmarks.report.limits_page import render_limits
from benchmarks.report.page import render_large_page, render_page
from benchmarks.report.pipeline_page import render_pipeline
from benchmarks.report.scaling_page import render_scaling
from benchmarks.report.surface_page import render_surface
from benchmarks.results import Results
from benchmarks.scaling.figures import Scaling
from benchmarks.settings import (
    NOTES,
    SHOWN_FRESHNESS,
    SHOWN_LIMITS,
    SHOWN_PIPELINE,
    SHOWN_RESULTS,
    SHOWN_SCALING,
    SHOWN_SURFACE,
)
from benchmarks.surface.figures import Surface

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Page(Generic[Found]):
    """``results``: the file that the page in the documentation is made from, which ``read`` understands."""

    results: Path
    read: Callable[[Path], Found]
    render: Callable[[Found], str]

    def made_from(self, results: Path | None = None) -> str:
        """The page as Markdown. Raises `OSError`, and `ValueError` where the file is not of its kind."""
        return self.render(self.read(results or self.results))


def _json_of(figures: type[Found]) -> Callable[[Path], Found]:
    return lambda path: msgspec.json.decode(path.read_bytes(), type=figures)


def _render_peers(found: Results) -> str:
    return render_page(found, NOTES.read_text() if NOTES.exists() else None)


def _of_large_set(page: str, title: str) -> Page[Results]:
    """The page ``docs/PAGE-benchmarks.md``, of the results and the comments of the same name."""
    notes = Path(f"docs/{page}-benchmarks-notes.md")

    def rendered(found: Results) -> str:
        return render_large_page(page, title, found, notes.read_text() if notes.exists() else None)

    return Page(Path(f"docs/{page}-benchmarks.json"), Results.read, rendered)


PAGES: dict[str, Page[Any]] = {
    "benchmarks": Page(SHOWN_RESULTS, Results.read, _render_peers),
    "freshness": Page(SHOWN_FRESHNESS, _json_of(Freshness), render_freshness),
    "huge": _of_large_set("huge", "five million vectors"),
    "large": _of_large_set("large", "a million vectors"),
    "limits": Page(SHOWN_LIMITS, _json_of(Limits), render_limits),
    "pipeline": Page(SHOWN_PIPELINE, _json_of(Figures), render_pipeline),
    "scaling": Page(SHOWN_SCALING, _json_of(Scaling), render_scaling),
    "surface": Page(SHOWN_SURFACE, _json_of(Surface), render_surface),
    "wide": _of_large_set("wide", "a million wider vectors"),
}
