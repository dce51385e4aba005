"""The results, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import msgspec


class Line(msgspec.Struct, frozen=True):
    """One figure. ``low``, ``high``: its spread over the rounds. ``wanted``: a bound such as ``≤ 1.3``."""

    label: str
    middle: float
    low: float
    high: float
    wanted: str = ""

    @property
    def is_met(self) -> bool:
        """Whether the bound holds; True without one."""
        if not self.wanted:
            return True
        side, _, bound = self.wanted.partition(" ")
        return self.middle <= float(bound) if side == "≤" else self.middle >= float(bound)


class Part(msgspec.Struct, frozen=True):
    """``about``: the data, for the reader. ``load_average``: of the machine before the part began."""

    about: str
    load_average: float
    lines: Sequence[Line]


class Surface(msgspec.Struct, frozen=True):
    """``machine``: processors, memory, operating system. ``parts``: by name."""

    version: str
    machine: str
    parts: Mapping[str, Part]

    def with_part(self, name: str, part: Part) -> Surface:
        return msgspec.structs.replace(self, parts={**self.parts, name: part})


def line(label: str, values: Sequence[float], wanted: str = "") -> Line:
    """The median of what the rounds gave, and its spread."""
    return Line(label, median(values), min(values), max(values), wanted)
