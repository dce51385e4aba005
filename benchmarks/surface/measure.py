"""Which parts there are, and the run over them."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from benchmarks.report.surface_page import render_surface
from benchmarks.surface import disk, growing, narrow, scalar, text
from benchmarks.surface.figures import Line, Part, Surface
from elanus import __version__


@dataclass(frozen=True, slots=True)
class Planned:
    """``rows``: of a whole run. ``about``: the data, by the number of rows."""

    rows: int
    about: Callable[[int], str]
    measure: Callable[[int, int, Path | None, Callable[[str], None]], list[Line]]


PARTS: Mapping[str, Planned] = {
    "text": Planned(1_000_000, text.about, text.measure),
    "narrow": Planned(60_000, narrow.about, narrow.measure),
    "scalar": Planned(1_000_000, scalar.about, scalar.measure),
    "growing": Planned(500_000, growing.about, growing.measure),
    "disk": Planned(1_000_000, disk.about, disk.measure),
}


def measure(
    names: Sequence[str],
    share: float,
    rounds: int,
    out: Path,
    page: Path,
    keep: Path | None,
    say: Callable[[str], None],
) -> None:
    """Measure these parts with ``share`` of their rows. Both files are written after each part; parts that
    are not measured stay as the results file has them.

    ``keep``: what is imported and built stays in this directory, and is not built again by the next run.
    """
    known = msgspec.json.decode(out.read_bytes(), type=Surface).parts if out.exists() else {}
    memory_gb = psutil.virtual_memory().total / 2**30
    machine = f"{os.cpu_count()} processors, {memory_gb:.0f} GiB of memory, {platform.system()}"
    found = Surface(__version__, machine, known)
    for name in names:
        planned = PARTS[name]
        rows, load_average = int(planned.rows * share), os.getloadavg()[0]
        say(f"{name}: {rows:,} rows")
        home = None if keep is None else keep / f"{name}-{rows}"
        lines = planned.measure(rows, rounds, home, say)
        for one in lines:
            say(f"{name}: {one.label}: {one.middle:.3g} ({one.low:.3g} to {one.high:.3g}) {one.wanted}")
        found = found.with_part(name, Part(planned.about(rows), round(load_average, 1), lines))
        out.write_bytes(msgspec.json.encode(found) + b"\n")
        page.write_text(render_surface(found))
