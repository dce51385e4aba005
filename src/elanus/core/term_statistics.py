"""Statistics of terms: what full-text search needs to know about all texts.

They add up over any parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class TermStatistics:
    """Of some rows: how many there are, their total length, and how many have each of some terms.

    ``having``: int64 (terms,).
    """

    rows: int
    length: int
    having: npt.NDArray[np.int64]

    @classmethod
    def none(cls, terms: int) -> TermStatistics:
        """Those of no rows."""
        return cls(0, 0, np.zeros(terms, dtype=np.int64))

    def __add__(self, other: TermStatistics) -> TermStatistics:
        return TermStatistics(self.rows + other.rows, self.length + other.length, self.having + other.having)

    @property
    def average(self) -> float:
        """The average length; 1 if there are no terms, and so nothing to compare with it."""
        return self.length / self.rows if self.length else 1.0
