"""Lookups that a filter can request from a scalar index: leaves of the bound tree, without filter syntax.

`elanus.expr` asks, `elanus.index` answers; neither depends on the other. A row without a value never matches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Value: TypeAlias = bool | int | float | str
Path: TypeAlias = tuple[str | int, ...]
"""Where a value is in a JSON document: object keys and array indexes, outermost first."""


@dataclass(frozen=True, slots=True, eq=False)
class OneOf:
    """Rows whose value is among ``values``.

    These have the column's Arrow type; for JSON they are float64, strings or booleans.
    """

    values: pa.Array


@dataclass(frozen=True, slots=True, eq=False)
class Between:
    """Rows whose value is between the bounds; None: no bound on that side.

    A bound may be a fraction even if the column holds whole numbers.
    """

    low: Value | None
    high: Value | None
    low_included: bool = True
    high_included: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class StartsWith:
    """Rows whose text begins with ``prefix``."""

    prefix: str


@dataclass(frozen=True, slots=True, eq=False)
class Matching:
    """Rows whose text passes ``test``: strings (n,) → booleans (n,). It contains each of ``fragments``."""

    fragments: tuple[str, ...]
    test: Callable[[pa.Array], pa.Array]


@dataclass(frozen=True, slots=True, eq=False)
class Holds:
    """Rows whose array has any of ``values`` as an element, or all of them; ``values`` are not empty."""

    values: pa.Array
    need_all: bool


@dataclass(frozen=True, slots=True, eq=False)
class HoldsSuch:
    """Rows whose array has an element that matches ``lookup``."""

    lookup: Between | StartsWith


@dataclass(frozen=True, slots=True, eq=False)
class Near:
    """Rows whose geometry may touch a box: those whose bounds do, and geometries that are empty.

    ``box``: x and y of the lower corner, then of the upper one, (4,). ``of_points``: the box says something
    about points only, so every other geometry is found.
    """

    box: npt.NDArray[np.float64]
    of_points: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Inside:
    """Rows whose JSON document has, at a path below the indexed one, a value that matches ``lookup``."""

    path: Path
    lookup: OneOf | Holds


Lookup: TypeAlias = OneOf | Between | StartsWith | Matching | Holds | HoldsSuch | Near | Inside


@dataclass(frozen=True, slots=True, eq=False)
class RowNumbers:
    """An answer for few rows: each once, in any order. Unsigned or signed integers, shape (m,)."""

    rows: npt.NDArray[np.integer]


@dataclass(frozen=True, slots=True, eq=False)
class PackedRows:
    """An answer for any number of rows: row i is bit ``i % 8`` of byte ``i // 8``."""

    bits: npt.NDArray[np.uint8]


Found: TypeAlias = RowNumbers | PackedRows

NO_ROWS = RowNumbers(np.empty(0, np.int64))
