"""Pictures for the documentation: small SVG files that are the same for the same figures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def drawn(path: Path, size_inch: tuple[float, float]) -> Iterator[Any]:
    """A matplotlib figure to draw into, written at the end. Needs matplotlib."""
    # Drawn without pyplot, which would look for a display and keep figures alive.
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    # Text stays text: outlines of letters would be most of the file. Ids are random without a salt.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": path.name}):
        figure = Figure(figsize=size_inch, layout="constrained")
        FigureCanvasSVG(figure)
        yield figure
        figure.savefig(path, format="svg", metadata={"Date": None})
