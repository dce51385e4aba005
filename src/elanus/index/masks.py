"""Which rows of a segment a search may return.

Deletes, timestamps and the filter are combined into one boolean per row. A `RowMask` is the result, packed
into one bit per row once and then shared by every search of the same segment version: it is immutable.
Derived values (row numbers, faiss's selector) are made on first use and cached; two threads may make them at
the same time, and then cache equal values.

The bits are numpy's ``bitorder="little"``, which is what faiss's ``IDSelectorBitmap`` reads: row i is bit
``i % 8`` of byte ``i // 8``.
"""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
RowIds = npt.NDArray[np.int64]


class RowMask:
    """An immutable set of visible rows out of ``rows``. Safe to share between threads."""

    __slots__ = ("_bits", "_row_ids", "_selector", "count", "rows")

    rows: int
    count: int

    def __init__(self, bits: npt.NDArray[np.uint8], rows: int, count: int) -> None:
        """``bits``: shape (ceil(rows / 8),), bits beyond ``rows`` clear. Use `from_bool`."""
        bits.flags.writeable = False
        self._bits = bits
        self.rows = rows
        self.count = count
        self._row_ids: RowIds | None = None
        self._selector: Any = None

    @classmethod
    def from_bool(cls, visible: Bools) -> RowMask:
        """``visible``: bool, shape (rows,). It is copied (packed), not kept."""
        if visible.dtype != np.bool_ or visible.ndim != 1:
            raise ValueError(
                f"a row mask is a bool array of one dimension, not {visible.dtype} {visible.shape}"
            )
        return cls(np.packbits(visible, bitorder="little"), len(visible), int(np.count_nonzero(visible)))

    @property
    def selectivity(self) -> float:
        """The visible share of the rows, in [0, 1]; 1 for no rows at all."""
        return self.count / self.rows if self.rows else 1.0

    @property
    def row_ids(self) -> RowIds:
        """The visible rows, ascending. int64, shape (count,)."""
        if self._row_ids is None:
            row_ids = np.flatnonzero(self.to_bool())
            row_ids.flags.writeable = False
            self._row_ids = row_ids
        return self._row_ids

    @property
    def selector(self) -> Any:
        """The ``faiss.IDSelectorBitmap`` over these bits. It points into this mask: keep the mask alive."""
        if self._selector is None:
            self._selector = faiss.IDSelectorBitmap(len(self._bits), faiss.swig_ptr(self._bits))
        return self._selector

    def contains(self, rows: RowIds) -> Bools:
        """Whether each row number is visible; negative ones (no hit) are not. Any shape → the same."""
        bits = self._bits[rows >> 3] >> (rows & 7).astype(np.uint8) & np.uint8(1)
        visible: Bools = bits.view(np.bool_) & (rows >= 0)
        return visible

    def between(self, start: int, stop: int) -> RowIds:
        """The visible rows with start ≤ row < stop, ascending. ``start`` is a multiple of 8."""
        window = self._bits[start // 8 : (stop + 7) // 8]
        return np.flatnonzero(np.unpackbits(window, count=stop - start, bitorder="little")) + start

    def part(self, start: int, stop: int) -> RowMask:
        """The mask of the rows with start ≤ row < stop, numbered from 0. ``start`` is a multiple of 8, and
        ``stop`` too unless it is the last."""
        bits = self._bits[start // 8 : (stop + 7) // 8]
        return RowMask(bits, stop - start, int(np.bitwise_count(bits).sum()))

    def to_bool(self) -> Bools:
        """bool, shape (rows,). A new array."""
        return np.unpackbits(self._bits, count=self.rows, bitorder="little").view(np.bool_)

    @property
    def memory_bytes(self) -> int:
        """Bytes held now; grows by 8 per visible row after the first use of `row_ids`."""
        return self._bits.nbytes + (0 if self._row_ids is None else self._row_ids.nbytes)
