"""The picture of growth: time and memory of flush jobs by their rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.pipeline.growth import GrowthPoint
from benchmarks.report.drawing import drawn


def draw_growth(points: Sequence[GrowthPoint], path: Path) -> None:
    """Write an SVG with two panels over one axis of rows. Needs matplotlib."""
    with drawn(path, (7.5, 3.0)) as figure:
        cost, memory = figure.subplots(1, 2)
        millions = [point.rows / 1e6 for point in points]
        largest = points[-1]
        cost.plot(
            [0, millions[-1]], [0, largest.seconds], color="0.75", label="the largest job's cost per row"
        )
        cost.plot(millions, [point.seconds for point in points], "o", label="measured")
        cost.set_ylabel("seconds")
        cost.legend(frameon=False, fontsize=8)
        memory.plot(millions, [point.driver_mb for point in points], "o-")
        memory.set_ylabel("driver's memory, MB")
        for panel in (cost, memory):
            panel.set_xlabel("million rows in one job")
            panel.set_ylim(bottom=0)
