"""An exact scan made shorter by small codes: they choose candidates, and the rows themselves rank these.

Reading the rows is what an exact scan costs. A code has a bit for every component: a thirty-second of the
floats. There are two kinds:

* `CodedScan` compares the codes of all rows, visible or not, in their order, by table lookups in registers
  (André, Kermarrec and Le Scouarnec, 2015): four bits for every four components. That takes less than
  reading a tenth of the vectors.
* `RowCodes` compares the codes of the visible rows, by their numbers, by table lookups in the cache (Jégou,
  Douze and Schmid, 2011): eight bits for every eight components. A row that is apart from the others costs
  one or two lines of the cache instead of eight or more, so this serves filters that leave few rows of a
  large segment.

Codes are coarse, so each answer is checked. The candidates are ordered by their codes. If all hits are in the
first half of them, the codes placed the near rows near, and hardly any near row is beyond the last candidate.
If a hit is in the second half, more candidates are ranked, and if that does not help, all visible rows are.
Data whose rows the codes cannot distinguish (independent noise in all dimensions) is recognized while the
codes are made, and gets none.

The scores are those of the exact scan, bit for bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from elanus.core.lookup import RowNumbers
from elanus.core.metrics import Metric
from elanus.core.trail import current
from elanus.index import kernels, plan
from elanus.index.adding import compared, encode_in_chunks
from elanus.index.decoded_rows import parts
from elanus.index.exact import ExactRows
from elanus.index.hits import NO_ROW, Hits, RowIds, best_of, no_hits, stacked
from elanus.index.library import faiss
from elanus.index.masks import RowMask
from elanus.index.parallel import fan_out, openmp_threads, shares_of
from elanus.index.spec import IndexSpec

CODES_KEY: Final = "codes"
PART_DIMS = 4
"""Components per codeword."""
CODE_BITS = 4
ROW_ID_BYTES = 8
ROW_CODES_KEY: Final = "row_codes"
ROW_WORDS_KEY: Final = "row_codewords"
ROW_PART_DIMS = 8
ROW_CODE_BITS = 8
ROW_CODES_ROWS_MIN = 1 << 17
"""With fewer rows, those that a filter leaves are too few to be worth the tables of a query."""
ROW_TRAINING_ROWS = 8192
ROW_SAMPLED = 1 << 14
"""As many rows as a filter may leave: among them the codes must find the nearest."""
DIM_MIN = 64
"""With fewer dimensions a row is read as quickly as a code."""
FILTERED_DIM_MIN = 256
FILTERED_ROWS_MIN = 8192
"""Under a filter an exact scan reads the visible rows only: codes pay for longer rows, and many of them."""
TRAINING_ROWS = 2048
TRAINING_ROUNDS = 8
CANDIDATES_MIN = 100
CANDIDATES_PER_HIT = 5
WIDENING = 4
"""How many times more candidates the second round has."""
CANDIDATES_SHARE_MAX = 0.5
"""Where more of the visible rows would be candidates, all of them are compared."""

SAMPLES = 24
SAMPLE_HITS = 10
SAMPLE_RECALL_MIN = 0.9
"""The share of the nearest rows that must be among the first candidates, for codes to be kept."""


class CodedRanking(ABC):
    """Candidates by codes, ranked by the rows. Immutable, and safe for many threads."""

    def __init__(self, rows: ExactRows) -> None:
        self._rows = rows

    @property
    @abstractmethod
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to store in an index file."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """Bytes of the codes and the codewords."""

    def cost_ns(self, k: int, visible: int) -> float:
        """Return the cost per query of a search, infinite where `nearest` would compare all visible rows."""
        candidates = candidates_of(k)
        if candidates > CANDIDATES_SHARE_MAX * visible:
            return float("inf")
        return self._cost_ns(candidates, visible)

    @abstractmethod
    def _cost_ns(self, candidates: int, visible: int) -> float: ...

    @abstractmethod
    def _candidates(
        self, queries: npt.NDArray[Any], depth: int, mask: RowMask | None, threads: int
    ) -> RowIds:
        """Return the best visible rows of each query by their codes, best first: (nq, depth), padded with row
        -1."""

    def nearest(self, queries: npt.NDArray[Any], k: int, mask: RowMask | None, threads: int) -> Hits:
        """Return the k best visible rows of each query; k is at most the number of visible rows."""
        visible = self._rows.count if mask is None else mask.count
        hits, pending = no_hits(len(queries), k, self._rows.metric), np.arange(len(queries))
        candidates = candidates_of(k)
        trail = current()
        if trail is not None:
            trail.method("codes", len(queries) * visible, candidates=candidates)
        for depth in (candidates, candidates * WIDENING):
            if depth > CANDIDATES_SHARE_MAX * visible:
                break
            found, certain = self._ranked(queries[pending], k, depth, mask, threads)
            if certain.all() and len(certain) == len(queries):
                return found
            hits.distances[pending] = found.distances
            hits.rows[pending] = found.rows
            pending = pending[~certain]
            if not len(pending):
                return hits
        rest = self._rows.nearest(queries[pending], k, mask, threads)
        hits.distances[pending] = rest.distances
        hits.rows[pending] = rest.rows
        return hits

    def distinguishes_rows(self, queries: npt.NDArray[Any], mask: RowMask | None = None) -> bool:
        """Whether the codes find the visible rows nearest to these rows, not counting each row itself."""
        k = SAMPLE_HITS + 1
        if candidates_of(k) > CANDIDATES_SHARE_MAX * (self._rows.count if mask is None else mask.count):
            return True
        truth = self._rows.nearest(queries, k, mask, 1).rows[:, 1:]
        found = self._candidates(queries, candidates_of(k), mask, 1)
        near = [np.isin(wanted, met).mean() for wanted, met in zip(truth, found, strict=True)]
        return bool(np.mean(near) >= SAMPLE_RECALL_MIN)

    def _ranked(
        self, queries: npt.NDArray[Any], k: int, depth: int, mask: RowMask | None, threads: int
    ) -> tuple[Hits, npt.NDArray[np.bool_]]:
        """Return the best of ``depth`` candidates, and for which queries they were many enough."""
        hits = no_hits(len(queries), k, self._rows.metric)
        certain = np.zeros(len(queries), dtype=np.bool_)
        for i, met in enumerate(self._candidates(queries, depth, mask, threads)):
            rows = met if met[-1] >= 0 else met[met >= 0]
            if len(rows) < k:
                continue
            scores, places = best_of(self._rows.scores(queries[i], rows), k, self._rows.metric)
            hits.distances[i] = scores
            hits.rows[i] = rows[places]
            certain[i] = 2 * int(places.max()) < depth
        return hits, certain


class CodedScan(CodedRanking):
    """Codes that are compared with all others, and the rows.

    ``read``: returns faiss's inverted list of 4-bit product codes, one list for all rows, in their order. It
    is called when they are first needed: a graph needs them for filters only.
    """

    def __init__(self, dim: int, read: Callable[[], Any], rows: ExactRows) -> None:
        super().__init__(rows)
        self._dim = dim
        self._read = read

    @cached_property
    def _codes(self) -> Any:
        return self._read()

    @classmethod
    def over(cls, codes: Any, rows: ExactRows) -> CodedScan:
        """Codes that are in memory, as faiss's list, and the rows."""
        return cls(codes.d, lambda: codes, rows)

    @classmethod
    def of(cls, spec: IndexSpec, vectors: Any, rows: ExactRows) -> CodedScan | None:
        """Make the codes of ``vectors``, in their stored form; None where they would be of no use.

        ``rows``: the same rows for exact comparison.
        """
        if not fits(spec.dim):
            return None
        empty = trained(spec, vectors)
        made = cls.over(encoded(spec, empty, vectors), rows)
        return made if made.distinguishes_rows(compared(spec, vectors[sample_of(len(vectors))])) else None

    @classmethod
    def from_arrays(
        cls, dim: int, arrays: Mapping[str, npt.NDArray[Any]], rows: ExactRows
    ) -> CodedScan | None:
        """Read the arrays of an index file; None if it has no codes."""
        if CODES_KEY not in arrays:
            return None
        return cls(dim, lambda: faiss.deserialize_index(arrays[CODES_KEY]), rows)

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {CODES_KEY: faiss.serialize_index(self._codes)}

    @property
    def memory_bytes(self) -> int:
        return round(self._rows.count * row_bytes(self._dim)) + table_bytes(self._dim)

    def _cost_ns(self, candidates: int, visible: int) -> float:
        return plan.coded_cost_ns(self._rows.count, self._dim, candidates)

    def _candidates(
        self, queries: npt.NDArray[Any], depth: int, mask: RowMask | None, threads: int
    ) -> RowIds:
        parameters = None if mask is None else faiss.SearchParametersIVF(nprobe=1, sel=mask.selector)

        def scan(share: npt.NDArray[Any]) -> Hits:
            return Hits(*self._codes.search(share, depth, params=parameters))

        return stacked(fan_out(scan, shares_of(queries, threads))).rows


class RowCodes(CodedRanking):
    """Codes that are compared by the numbers of their rows, and the rows.

    ``codewords``: faiss's quantizer. ``codes``: uint8 (n, parts), a row after the other.
    """

    def __init__(self, codewords: Any, codes: npt.NDArray[np.uint8], rows: ExactRows) -> None:
        super().__init__(rows)
        self._codewords = codewords
        self._codes = codes

    @classmethod
    def of(cls, spec: IndexSpec, vectors: Any, rows: ExactRows) -> RowCodes | None:
        """As `CodedScan.of`."""
        codewords = faiss.ProductQuantizer(spec.dim, spec.dim // ROW_PART_DIMS, ROW_CODE_BITS)
        codewords.cp.niter = TRAINING_ROUNDS
        codewords.cp.min_points_per_centroid = 1
        with openmp_threads(
            1
        ):  # its steps are so short that several threads would mostly wait for each other
            codewords.train(compared(spec, vectors[_spread(len(vectors), ROW_TRAINING_ROWS)]))
        codes = np.empty((len(vectors), codewords.code_size), dtype=np.uint8)
        for part in parts(len(vectors)):
            codes[part] = codewords.compute_codes(compared(spec, vectors[part]))
        made = cls(codewords, codes, rows)
        among = _spread(len(vectors), ROW_SAMPLED)
        queries = compared(spec, vectors[among[sample_of(len(among))]])
        return made if made.distinguishes_rows(queries, RowMask(RowNumbers(among), len(vectors))) else None

    @classmethod
    def from_arrays(
        cls, dim: int, arrays: Mapping[str, npt.NDArray[Any]], rows: ExactRows
    ) -> RowCodes | None:
        """Read the arrays of an index file; None if it has no such codes."""
        if ROW_CODES_KEY not in arrays:
            return None
        codes = arrays[ROW_CODES_KEY]
        codewords = faiss.ProductQuantizer(dim, codes.shape[1], ROW_CODE_BITS)
        faiss.copy_array_to_vector(np.array(arrays[ROW_WORDS_KEY]), codewords.centroids)
        return cls(codewords, codes, rows)

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {ROW_CODES_KEY: self._codes, ROW_WORDS_KEY: faiss.vector_to_array(self._codewords.centroids)}

    @property
    def memory_bytes(self) -> int:
        return self._codes.nbytes + row_words_bytes(self._codewords.d)

    def _cost_ns(self, candidates: int, visible: int) -> float:
        return plan.row_codes_cost_ns(self._rows.count, visible, self._codewords.d, candidates)

    def _candidates(
        self, queries: npt.NDArray[Any], depth: int, mask: RowMask | None, threads: int
    ) -> RowIds:
        numbers = None if mask is None else mask.numbers
        codes = self._codes if numbers is None else self._codes.take(numbers, axis=0)
        inner_product = self._rows.metric is Metric.IP

        def scan(share: npt.NDArray[Any]) -> Hits:
            return Hits(
                *kernels.nearest_codes(self._codewords, share, codes, depth, inner_product=inner_product)
            )

        places = stacked(fan_out(scan, shares_of(queries, threads))).rows
        if numbers is None:
            return places
        rows: RowIds = numbers[places]
        rows[places < 0] = NO_ROW
        return rows


def fits(dim: int) -> bool:
    """Whether vectors of this dimension can have codes that are worth it."""
    return dim >= DIM_MIN and dim % PART_DIMS == 0


def serves_filters(dim: int, rows: int) -> bool:
    """Whether a graph over as many rows gets codes for searches under filters."""
    return fits(dim) and dim >= FILTERED_DIM_MIN and rows >= FILTERED_ROWS_MIN


def serves_sparse_filters(dim: int, rows: int) -> bool:
    """Whether a graph over as many rows gets codes by row, for filters that leave few of them."""
    return DIM_MIN <= dim < FILTERED_DIM_MIN and dim % ROW_PART_DIMS == 0 and rows >= ROW_CODES_ROWS_MIN


def row_bytes(dim: int) -> float:
    """Return the bytes of one row's code."""
    return dim / PART_DIMS * CODE_BITS / 8 + ROW_ID_BYTES


def table_bytes(dim: int) -> int:
    """Return the bytes of the codewords, and of the list's center."""
    return 4 * dim * ((1 << CODE_BITS) + 1)


def row_words_bytes(dim: int) -> int:
    """Return the bytes of the codewords of codes by row."""
    return 4 * dim << ROW_CODE_BITS


def candidates_of(k: int) -> int:
    """Return how many rows are ranked for k hits at first."""
    return CANDIDATES_MIN + CANDIDATES_PER_HIT * k


def sample_of(rows: int) -> RowIds:
    """Return evenly spaced row numbers to try codes with: int64, ascending, at most `SAMPLES`."""
    return _spread(rows, SAMPLES)


def _spread(rows: int, count: int) -> RowIds:
    """At most ``count`` row numbers, evenly spaced, ascending."""
    return np.unique(np.linspace(0, rows - 1, count, dtype=np.int64))


def trained(spec: IndexSpec, vectors: Any) -> Any:
    """Return an empty list whose codewords are those of these vectors, in their stored form.

    Unit vectors are compared by their distance, which is in the same order as their cosine, and which codes
    approximate better.
    """
    metric = faiss.METRIC_INNER_PRODUCT if spec.metric_type is Metric.IP else faiss.METRIC_L2
    center = faiss.IndexFlat(spec.dim, metric)
    codes = faiss.IndexIVFPQFastScan(center, spec.dim, 1, spec.dim // PART_DIMS, CODE_BITS, metric)
    codes.own_fields = True
    center.this.disown()
    codes.pq.cp.niter = TRAINING_ROUNDS
    codes.pq.cp.min_points_per_centroid = 1
    codes.train(compared(spec, vectors[_spread(len(vectors), TRAINING_ROWS)]))
    return codes


def encoded(spec: IndexSpec, empty: Any, vectors: Any) -> Any:
    """Return the codes of these vectors, by the codewords of ``empty``."""
    codes = faiss.clone_index(empty)
    encode_in_chunks(spec, codes, vectors)
    return codes
