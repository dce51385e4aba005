"""The picture of a day: the bytes on disk over time, and the events."""

from __future__ import annotations

from pathlib import Path

from benchmarks.pipeline.day import PARTS, SURPLUS_MAX, Day
from benchmarks.report.drawing import drawn

_MB = 1_000_000
_LABEL_WIDTH = 0.015


def draw_day(day: Day, path: Path) -> None:
    """Write an SVG: the parts of the data directory stacked over time. Needs matplotlib."""
    with drawn(path, (8.5, 3.6)) as figure:
        axes = figure.subplots()
        seconds = [sample.at_s for sample in day.samples]
        parts = [
            [size / _MB for size in sizes]
            for sizes in zip(*(s.sizes_bytes for s in day.samples), strict=True)
        ]
        axes.stackplot(seconds, *parts, labels=PARTS)
        most = (1 + SURPLUS_MAX) * day.live_bytes / _MB
        axes.axhline(most, color="black", linewidth=0.8, linestyle="--")
        axes.annotate(
            f"live data and {SURPLUS_MAX:.0%}", (seconds[-1], most), ha="right", va="bottom", fontsize=8
        )
        axes.set_xlim(0, seconds[-1])
        axes.set_ylim(0, 1.3 * max(sample.total_bytes for sample in day.samples) / _MB)
        labeled_s = -seconds[-1]
        for at_s, name in day.steps:
            axes.axvline(at_s, color="0.6", linewidth=0.5)
            if at_s - labeled_s > _LABEL_WIDTH * seconds[-1]:  # of steps that follow at once, the first
                place = (at_s, 0.99)
                axes.annotate(
                    name, place, xycoords=axes.get_xaxis_transform(), rotation=90, va="top", fontsize=7
                )
                labeled_s = at_s
        axes.set_xlabel("seconds")
        axes.set_ylabel("MB on disk")
        axes.legend(frameon=False, fontsize=8, loc="upper right")
