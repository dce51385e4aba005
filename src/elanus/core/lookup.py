"""Lookups that a filter can request from a scalar index: leaves of the bound tree, without filter syntax.

`elanus.expr` asks, `elanus.index` answers; neither depends on the other. A row without a value never matches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

Value: TypeAlias = bool | int | float | str


@dataclass(frozen=True, slots=True, eq=False)
class OneOf:
    """Rows whose value is among ``values``, which have the column's Arrow type."""

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


Lookup: TypeAlias = OneOf | Between | StartsWith
