"""The demo's picture: queries, and next to each one the neighbors that the search found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

MISSING = "the picture needs matplotlib: pip install 'elanus[demo]'"


@dataclass(frozen=True, slots=True)
class Neighbor:
    """One hit: its image (d,), its digit label, its distance as the server returned it."""

    image: npt.NDArray[np.float32]
    label: int
    distance: float


@dataclass(frozen=True, slots=True)
class Row:
    """A query's image (d,) and its neighbors, nearest first."""

    query: npt.NDArray[np.float32]
    neighbors: Sequence[Neighbor]


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write a PNG with one line per query. The images are square: d is a square number."""
    # The figure is drawn without pyplot, which would look for a display and keep figures alive.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = 1 + max(len(row.neighbors) for row in rows)
    figure = Figure(figsize=(columns * 0.95, len(rows) * 1.25), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for line, row in zip(axes, rows, strict=True):
        _image(line[0], row.query, "query")
        for axis, neighbor in zip(line[1:], row.neighbors, strict=False):
            _image(axis, neighbor.image, f"{neighbor.label}  ({np.sqrt(neighbor.distance):.0f})")
        for axis in line:
            axis.axis("off")
    figure.suptitle("Queries and their nearest neighbors: label (Euclidean distance)", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _image(axis: object, pixels: npt.NDArray[np.float32], title: str) -> None:
    side = int(len(pixels) ** 0.5)
    axis.imshow(pixels.reshape(side, side), cmap="gray_r")  # type: ignore[attr-defined]
    axis.set_title(title, fontsize=8)  # type: ignore[attr-defined]
