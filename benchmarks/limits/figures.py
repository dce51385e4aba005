"""The results, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec


class End(StrEnum):
    """Why a dimension grew no further."""

    GAVE = "gave"
    BOUND = "bound"
    TIME = "time"
    INTERRUPTED = "interrupted"


class Look(msgspec.Struct, frozen=True):
    """A server that nobody uses.

    ``idle_percent``: of one core, by its online process; ``idle_all_percent``: by all its processes.
    ``rss_mb``, ``open_files``: of the online process. ``restart_s``: from the start of a new server on the
    same data to its first answer; None where that was not measured. ``more``: what else this dimension
    measures, by the heading of its column.
    """

    idle_percent: float
    idle_all_percent: float
    rss_mb: float
    open_files: int
    restart_s: float | None = None
    more: Mapping[str, str] = {}


class Step(msgspec.Struct, frozen=True):
    """``one_more_ms``: milliseconds that each unit since the step before took, on average."""

    count: int
    one_more_ms: float
    look: Look


class Trickle(msgspec.Struct, frozen=True):
    """Single rows, written into all collections in turn.

    ``refused``: how many were; ``said``: the first error. ``cpu_percent``: of one core, over all
    processes of the server.
    """

    collections: int
    seconds: float
    rows: int
    refused: int
    median_ms: float
    p99_ms: float
    longest_ms: float
    cpu_percent: float
    growing_mb: float
    said: str = ""


class Dimension(msgspec.Struct, frozen=True):
    """One dimension's growth. ``at``: how many there were at the end; ``said``: what the user saw there."""

    name: str
    steps: Sequence[Step]
    end: End
    at: int
    said: str = ""
    trickle: Trickle | None = None


class Limits(msgspec.Struct, frozen=True):
    """``machine``: processors, memory, operating system."""

    version: str
    machine: str
    dimensions: Mapping[str, Dimension]

    def with_dimension(self, found: Dimension) -> Limits:
        return msgspec.structs.replace(self, dimensions={**self.dimensions, found.name: found})
