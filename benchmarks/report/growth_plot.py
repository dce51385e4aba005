"""The picture of growth: the time of each kind of job by its rows, and the driver's memory in all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.pipeline.growth import GrowthPoint
from benchmarks.report.drawing import drawn

_MEMORY = "memory"


def draw_growth(growth: Mapping[str, Sequence[GrowthPoint]], path: Path) -> None:
    """Write an SVG: two rows of panels of seconds, one for each kind; one of memory. Needs matplotlib."""
    names = list(growth)
    half = (len(names) + 1) // 2
    rows = [[*names[:half], _MEMORY], [*names[half:], *["."] * (2 * half - len(names)), _MEMORY]]
    with drawn(path, (3.2 * (half + 1), 5.2)) as figure:
        panels = figure.subplot_mosaic(rows)
        for name, points in growth.items():
            millions = [point.rows / 1e6 for point in points]
            straight = [0, points[-1].seconds]
            panels[name].plot([0, millions[-1]], straight, color="0.75", label="the largest's cost per row")
            panels[name].plot(millions, [point.seconds for point in points], "o", label=name)
            panels[name].set_ylabel("seconds")
            panels[_MEMORY].plot(millions, [point.driver_mb for point in points], "o-", label=name)
        panels[_MEMORY].set_ylabel("driver's memory, MB")
        for panel in panels.values():
            panel.legend(frameon=False, fontsize=8)
            panel.set_xlabel("million rows")
            panel.set_ylim(0, 1.05 * panel.get_ylim()[1])
