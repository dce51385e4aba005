"""Sparse vectors: rows of (index, value) pairs, of which a row has any number.

A pair is eight bytes: the index as uint32, then the value as float32, little-endian. A row's pairs follow
each other in the order of their indices. Clients send this form, and it is the only one: a column holds it as
``binary``, so the log, Parquet files and answers have the same bytes. One number of type uint64 holds a pair,
with the index in its lower half.

`SparseRows` is to sparse vectors what a matrix is to dense ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.errors import Internal, InvalidParameter
from elanus.core.limits import SPARSE_QUERY_PAIRS_MAX
from elanus.core.vectors import VectorForm

Pairs = npt.NDArray[np.uint64]
RowIds = npt.NDArray[np.int64]

PAIR = np.dtype("<u8")
NO_INDEX = 2**32 - 1
"""No vector has this index; it fills up the rows of a matrix of queries, with the value 0."""
_PAIRS_TYPICAL = 64
_COLUMN_BYTES_MAX = 2**31 - 1


class SparseRows:
    """Sparse vectors. Row i is ``pairs[starts[i]:starts[i + 1]]``; ``starts``: int64 (n + 1,), from 0."""

    __slots__ = ("pairs", "starts")

    def __init__(self, starts: RowIds, pairs: Pairs) -> None:
        self.starts = starts
        self.pairs = pairs

    @classmethod
    def from_column(cls, column: pa.Array) -> SparseRows:
        """Return the rows of a ``binary`` column without nulls, sharing its memory. They are not checked."""
        count = len(column)
        _, offsets, content = column.buffers()
        if count == 0 or content is None:
            return cls(np.zeros(count + 1, dtype=np.int64), np.empty(0, dtype=PAIR))
        ends = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + count + 1]
        first, last = int(ends[0]), int(ends[-1])
        pairs = np.frombuffer(content, dtype=PAIR, count=(last - first) // PAIR.itemsize, offset=first)
        return cls((ends.astype(np.int64) - first) // PAIR.itemsize, pairs)

    def to_column(self) -> pa.Array:
        """Return the rows as a ``binary`` column, of up to 2 GB. Raises `Internal` for more."""
        if len(self.pairs) * PAIR.itemsize > _COLUMN_BYTES_MAX:
            raise Internal(
                f"{len(self)} sparse vectors with {len(self.pairs)} values are too many for a column"
            )
        offsets = pa.py_buffer((self.starts * PAIR.itemsize).astype(np.int32))
        content = pa.py_buffer(np.ascontiguousarray(self.pairs).view(np.uint8))
        return pa.Array.from_buffers(pa.binary(), len(self), [None, offsets, content])

    @classmethod
    def joined(cls, parts: Sequence[SparseRows]) -> SparseRows:
        """Return the rows of several, one after the other; at least one."""
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(starts_of(lengths), np.concatenate([part.pairs for part in parts]))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, rows: RowIds) -> SparseRows:
        """These rows, in this order. A copy."""
        lengths = self.lengths[rows]
        starts = starts_of(lengths)
        places = np.arange(starts[-1]) + np.repeat(self.starts[:-1][rows] - starts[:-1], lengths)
        return SparseRows(starts, self.pairs[places])

    @property
    def lengths(self) -> RowIds:
        """The number of pairs of each row. (n,)."""
        return np.diff(self.starts)

    @property
    def indices(self) -> npt.NDArray[np.uint32]:
        """The index of every pair, (pairs,). A view."""
        return indices_of(self.pairs)

    @property
    def values(self) -> npt.NDArray[np.float32]:
        """The value of every pair, (pairs,). A view."""
        return values_of(self.pairs)

    @property
    def row_of(self) -> RowIds:
        """The row of every pair, (pairs,)."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def nbytes(self) -> int:
        return self.starts.nbytes + self.pairs.nbytes

    @property
    def dim(self) -> int:
        """One more than the largest index; 0 if there are no pairs."""
        return int(self.indices.max()) + 1 if len(self.pairs) else 0


def starts_of(lengths: RowIds) -> RowIds:
    """Return where rows of these lengths begin, and the end of the last. (n,) → int64 (n + 1,)."""
    starts = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def indices_of(pairs: Pairs) -> npt.NDArray[np.uint32]:
    """Return the indices of contiguous pairs. (n,) → uint32 (n,), a view."""
    return pairs.view("<u4")[::2]


def values_of(pairs: Pairs) -> npt.NDArray[np.float32]:
    """Return the values of contiguous pairs. (n,) → float32 (n,), a view."""
    return pairs.view("<f4")[1::2]


def paired(indices: npt.NDArray[Any], values: npt.NDArray[Any]) -> Pairs:
    """Pairs from indices below 2^32 and their values, both (n,)."""
    pairs = np.empty(len(indices), dtype=PAIR)
    indices_of(pairs)[:] = indices
    values_of(pairs)[:] = values
    return pairs


class SparseForm(VectorForm):
    """The form of sparse vectors: Arrow holds them as ``binary``, memory as `SparseRows`."""

    __slots__ = ()

    @property
    def dtype(self) -> np.dtype[Any]:
        return PAIR

    def row_bytes(self, dim: int) -> int:
        """Bytes of a vector of typical length: sparse vectors have no common one."""
        return _PAIRS_TYPICAL * PAIR.itemsize

    def arrow_type(self, dim: int) -> pa.DataType:
        return pa.binary()

    def dim_of(self, arrow_type: pa.DataType) -> int:
        return 0

    def to_matrix(self, column: pa.Array) -> Any:
        return SparseRows.from_column(column)

    def _zero(self, arrow_type: pa.DataType) -> pa.Scalar:
        return pa.scalar(b"", type=arrow_type)

    def to_column(self, matrix: Any) -> pa.Array:
        return matrix.to_column()

    def joined(self, parts: Sequence[Any]) -> Any:
        return SparseRows.joined(parts)


@dataclass(frozen=True, slots=True)
class SparseFault:
    """The first row that is no sparse vector. ``why``: in the reference's words."""

    row: int
    why: str


def first_fault(column: pa.Array) -> SparseFault | None:
    """Check a ``binary`` column without nulls. Values are finite and not negative, indices below 2^32 - 1.

    Indices are ascending, each once. A row without pairs is valid.
    """
    return _first_fault(column, negative=False)


def _first_fault(column: pa.Array, *, negative: bool) -> SparseFault | None:
    """``negative``: negative values are valid, as they are in queries."""
    if not len(column):
        return None
    sizes = pc.binary_length(column).to_numpy()
    broken = np.flatnonzero(sizes % PAIR.itemsize)
    if len(broken):
        row = int(broken[0])
        return SparseFault(row, f"invalid data length in sparse float vector: {sizes[row]}")
    rows = SparseRows.from_column(column)
    if not len(rows.pairs):
        return None
    indices, values = rows.indices, rows.values
    descends = np.zeros(len(indices), dtype=np.bool_)
    descends[1:] = indices[1:] <= indices[:-1]
    firsts = rows.starts[:-1]
    descends[firsts[firsts < len(indices)]] = False
    finite = np.isfinite(values)
    found = [
        (indices == NO_INDEX, "invalid index in sparse float vector: must be less than 2^32-1"),
        (descends, "unsorted or same indices in sparse float vector"),
        (~finite, "is not a number or infinity"),
    ]
    if not negative:
        found.append((values < 0, "negative value in sparse float vector"))
    faults = [(int(np.argmax(wrong)), n) for n, (wrong, _) in enumerate(found) if wrong.any()]
    if not faults:
        return None
    place, number = min(faults)
    row = int(np.searchsorted(rows.starts, place, side="right")) - 1
    why = found[number][1]
    return SparseFault(row, why if finite[place] or number < 2 else f"value '{_go(values[place])}' {why}")


def _go(value: np.float32) -> str:
    """Return a number that is not finite, as the reference writes it."""
    return "NaN" if np.isnan(value) else f"{'+' if value > 0 else '-'}Inf"


def padded(vectors: Sequence[bytes]) -> Pairs:
    """Query vectors as a matrix: uint64 (n, pairs of the longest), filled up with `NO_INDEX`.

    Raises `InvalidParameter` for bytes that are no sparse vector, and if the matrix would be too large.
    """
    column = pa.array(vectors, pa.binary())
    fault = _first_fault(column, negative=True)
    if fault is not None:
        raise InvalidParameter(f"{fault.why}: query vector {fault.row}")
    rows = SparseRows.from_column(column)
    longest = max(1, int(rows.lengths.max(initial=0)))
    if len(rows) * longest > SPARSE_QUERY_PAIRS_MAX:
        raise InvalidParameter(
            f"one search cannot have {len(rows)} sparse vectors, the longest with {longest} values: the "
            f"product may be at most {SPARSE_QUERY_PAIRS_MAX}; send fewer vectors in one request"
        )
    matrix = np.full((len(rows), longest), NO_INDEX, dtype=PAIR)
    matrix[np.arange(longest) < rows.lengths[:, None]] = rows.pairs
    return matrix
