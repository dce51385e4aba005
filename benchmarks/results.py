"""The record of a run: metrics per system, and the circumstances under which they were taken."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks.dataset import Dataset
from benchmarks.settings import Settings

FORMAT = 1


@dataclass
class SystemResult:
    """One system's part.

    Attributes:
        version: release measured; empty when the system could not be set up.
        values: metric key → figure; the keys are those of `benchmarks.report.catalog`.
        failures: measure → what went wrong; a measure that failed leaves no values.
        yardstick: the machine's speed just before each measure, see `benchmarks.yardstick`.
    """

    version: str = ""
    values: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    yardstick: list[float] = field(default_factory=list)


@dataclass
class Results:
    """One run.

    Attributes:
        circumstances: machine, data, date: text for the reader.
        settings: the numbers that shaped the run.
        systems: by name, in the order measured.
    """

    circumstances: dict[str, str]
    settings: dict[str, Any]
    systems: dict[str, SystemResult] = field(default_factory=dict)

    @classmethod
    def begin(cls, data: Dataset, settings: Settings) -> Results:
        """An empty record of a run that starts now."""
        numbers = dataclasses.asdict(settings)
        return cls(
            _circumstances(data), {k: list(v) if isinstance(v, tuple) else v for k, v in numbers.items()}
        )

    def write(self, path: Path) -> None:
        """Write as JSON, whole or not at all."""
        part = path.with_suffix(path.suffix + ".part")
        part.write_text(json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1) + "\n")
        part.replace(path)

    @classmethod
    def read(cls, path: Path) -> Results:
        """Read what `write` wrote.

        Raises:
            ValueError: the file is of another format.
        """
        raw = json.loads(path.read_text())
        if raw.pop("format", None) != FORMAT:
            raise ValueError(f"{path} is not a results file of format {FORMAT}")
        systems = {name: SystemResult(**one) for name, one in raw.pop("systems").items()}
        return cls(**raw, systems=systems)


def _circumstances(data: Dataset) -> dict[str, str]:
    rows, dimension = data.train.shape
    return {
        "data": f"{data.name}: {rows:,} × {dimension} float32, {len(data.test):,} queries, L2",
        **moment(),
        "command": " ".join(["python -m benchmarks", *_shown_arguments()]),
    }


def moment() -> dict[str, str]:
    """Return the date, the machine, and how busy it was in the last minute."""
    date, load = datetime.now(UTC).strftime("%Y-%m-%d"), f"{os.getloadavg()[0]:.1f}"
    return {"date": date, **machine(), "load before": load}


def circumstances_line(facts: Mapping[str, str]) -> str:
    """Return the facts as one line of Markdown."""
    return "*" + "; ".join(f"{name}: {text}" for name, text in facts.items()) + ".*"


def machine() -> dict[str, str]:
    """Return the facts about the machine that a page names."""
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _shown_arguments() -> list[str]:
    """The command line, with file names but not their folders."""
    return [Path(word).name if os.sep in word else word for word in sys.argv[1:]]
