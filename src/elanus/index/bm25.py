"""BM25: how relevant a text is to the terms of a query (Robertson et al., 1994).

::

    score = Σ weight(t) · tf / (tf + k1 · (1 - b + b · length / average))
    weight(t) = occurrences in the query · ln(1 + (N - n(t) + 0.5) / (n(t) + 0.5)) · (k1 + 1)

``tf``: how often the term occurs in the text, whose length is its number of terms. N texts, of which n(t)
have the term. An index holds ``tf`` and the lengths, nothing that depends on other texts. The weights and the
average length are part of the query: they are computed from the statistics of all rows that the read sees,
wherever these are. So a text has one score for each moment, and keeps it when segments are built, merged or
moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elanus.core.errors import InvalidParameter
from elanus.core.sparse import NO_INDEX, Pairs, indices_of, values_of
from elanus.core.term_statistics import TermStatistics
from elanus.index.hits import RowIds, Scores
from elanus.index.masks import RowMask
from elanus.index.spec import Sent
from elanus.index.values import number

K1_KEY = "bm25_k1"
B_KEY = "bm25_b"
AVERAGE_KEY = "bm25_avgdl"
"""The search parameter with the average length. Clients may send it: it is replaced."""

Terms = npt.NDArray[np.uint32]
Lengths = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class RangeParam:
    """A number in [low, high]."""

    low: float
    high: float
    default: float

    def resolve(self, name: str, sent: Sent, k: int) -> float:
        """Return the parameter's value. Raises `InvalidParameter`."""
        if name not in sent:
            return self.default
        value = number(name, sent[name])
        if not self.low <= value <= self.high:
            raise InvalidParameter(
                f"Out of range in json: param '{name}' ({value}) should be in range [{self.low}, {self.high}]"
            )
        return value


PARAMS: Mapping[str, RangeParam] = {
    K1_KEY: RangeParam(0.0, 3.0, 1.2),
    B_KEY: RangeParam(0.0, 1.0, 0.75),
    AVERAGE_KEY: RangeParam(0.0, float(2**63), 100.0),
}
"""Clients send them for the index. The proxy sends those of the index with each search."""


def query_of(terms: Pairs) -> Terms:
    """Return the distinct terms of a matrix of queries, ascending. (terms,)."""
    found: Terms = np.unique(indices_of(np.ascontiguousarray(terms).reshape(-1)))
    present: Terms = found[found != NO_INDEX]
    return present


def weighted(queries: Pairs, terms: Terms, statistics: TermStatistics, k1: float) -> Pairs:
    """Return the queries with weights in place of the terms' occurrences. uint64 (nq, pairs), both.

    ``statistics``: of all rows that the read sees; ``terms``: those that it counts (`query_of`).
    """
    having = statistics.having.astype(np.float64)
    rarity = np.log1p((statistics.rows - having + 0.5) / (having + 0.5)) * (k1 + 1)
    weighed = np.array(queries, order="C")
    flat = weighed.reshape(-1)
    present = indices_of(flat) != NO_INDEX
    places = np.searchsorted(terms, indices_of(flat)[present])
    values_of(flat)[present] *= rarity[places].astype(np.float32)
    return weighed


@dataclass(frozen=True, slots=True)
class Bm25:
    """Scores one posting. ``lengths``: of all rows, (rows,)."""

    lengths: Lengths
    k1: float
    b: float
    average: float

    @property
    def base(self) -> float:
        """The part of a row's norm that does not depend on its length."""
        return self.k1 * (1 - self.b)

    @property
    def slope(self) -> float:
        """The amount that each term of a row adds to its norm."""
        return self.k1 * self.b / self.average

    def scores(self, rows: RowIds, frequencies: Scores, weight: np.float32 | Scores) -> Scores:
        """Return the scores of a term for rows that have it, or of several terms with a weight each. (m,)."""
        norms = self.lengths.take(rows)
        norms *= np.float32(self.slope)
        norms += np.float32(self.base)
        norms += frequencies
        np.divide(frequencies, norms, out=norms)
        norms *= weight
        return norms


class TextLengths:
    """The lengths of an index's texts: all float32 (rows,), and their sum over the rows that reads see.

    The last sum is kept: reads see the same rows until one is deleted.
    """

    __slots__ = ("_last", "of_rows")

    def __init__(self, of_rows: Lengths) -> None:
        self.of_rows = of_rows
        self._last: tuple[RowMask | None, int] | None = None

    def visible(self, mask: RowMask | None) -> int:
        """Return the total length of the rows in the mask; None: of all."""
        last = self._last
        if last is None or last[0] is not mask:
            chosen = self.of_rows if mask is None else self.of_rows[mask.to_bool()]
            last = self._last = (mask, int(chosen.sum(dtype=np.float64)))
        return last[1]
