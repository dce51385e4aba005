"""Which rows of a segment a search may return.

Deletes, timestamps and the filter are combined into one set of rows, a `RowMask`. It is immutable, and every
search of the same segment version shares it. A mask keeps the form in which it was found: one bit per row,
or the row numbers if there are few. The other form and faiss's selector are made on first use and cached; two
threads may make them at the same time, and then cache equal values.

The bits are numpy's ``bitorder="little"``, which is what faiss's ``IDSelectorBitmap`` reads: row i is bit
``i % 8`` of byte ``i // 8``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from elanus.core.lookup import Found, PackedRows, RowNumbers
from elanus.core.row_sets import bits_at, bits_of, bits_set, bools_of, numbers_of_bits
from elanus.index.library import faiss

Bools = npt.NDArray[np.bool_]
RowIds = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]

NUMBERED_SHARE_MAX = 1 / 20
"""Up to this share of the rows, searches compare rows by number. Turning bits into numbers would cost as much
as comparing the codes of these rows, and both would be kept. Numbers take up to three times the memory."""


class RowMask:
    """An immutable set of visible rows out of ``rows``. Safe to share between threads."""

    __slots__ = ("_bits", "_numbers", "_row_ids", "_selector", "count", "rows")

    rows: int
    count: int

    def __init__(self, found: Found, rows: int) -> None:
        """``found``: the visible rows. Its arrays are kept, or copied."""
        self.rows = rows
        self._bits: Bits | None = None
        self._numbers: RowIds | None = None
        self._row_ids: RowIds | None = None
        self._selector: Any = None
        if isinstance(found, PackedRows):
            self.count = bits_set(found.bits)
            self._bits = _frozen(found.bits)
        else:
            self.count = len(found.rows)
            if self.count <= NUMBERED_SHARE_MAX * rows:
                self._numbers = _frozen(found.rows.astype(np.int64, copy=False))
            else:
                self._bits = _frozen(bits_of(found, rows))

    @classmethod
    def from_bool(cls, visible: Bools) -> RowMask:
        """``visible``: bool, shape (rows,). It is copied (packed), not kept."""
        if visible.dtype != np.bool_ or visible.ndim != 1:
            raise ValueError(
                f"a row mask is a bool array of one dimension, not {visible.dtype} {visible.shape}"
            )
        return cls(PackedRows(np.packbits(visible, bitorder="little")), len(visible))

    @property
    def bits(self) -> Bits:
        """One bit per row, those beyond ``rows`` clear. shape (ceil(rows / 8),)"""
        if self._bits is None:
            self._bits = _frozen(bits_of(self.found, self.rows))
        return self._bits

    @property
    def found(self) -> Found:
        """The rows in the form that is there."""
        if self._bits is not None:
            return PackedRows(self._bits)
        assert self._numbers is not None, "a mask has bits or numbers"
        return RowNumbers(self._numbers)

    @property
    def selectivity(self) -> float:
        """The visible share of the rows, in [0, 1]; 1 for no rows at all."""
        return self.count / self.rows if self.rows else 1.0

    @property
    def row_ids(self) -> RowIds:
        """The visible rows, ascending. int64, shape (count,)."""
        if self._row_ids is None:
            self._row_ids = _frozen(self.listed())
        return self._row_ids

    def listed(self) -> RowIds:
        """As `row_ids`, but not cached: for one use of rows that may be many."""
        if self._row_ids is not None:
            return self._row_ids
        return numbers_of_bits(self.bits) if self._numbers is None else np.sort(self._numbers)

    @property
    def numbers(self) -> RowIds:
        """As `row_ids`, in any order: for work that does not depend on it."""
        return self.row_ids if self._numbers is None else self._numbers

    @property
    def selector(self) -> Any:
        """The ``faiss.IDSelectorBitmap`` over these bits. It points into this mask: keep the mask alive."""
        if self._selector is None:
            self._selector = faiss.IDSelectorBitmap(len(self.bits), faiss.swig_ptr(self.bits))
        return self._selector

    def contains(self, rows: RowIds) -> Bools:
        """Whether each row number is visible; negative ones (no hit) are not. Any shape → the same."""
        visible: Bools = bits_at(self.bits, rows) & (rows >= 0)
        return visible

    def both(self, other: RowMask) -> RowMask:
        """Return the rows of both masks, which are over the same rows."""
        few, many = (other, self) if self._numbers is None else (self, other)
        if few._numbers is None:
            return RowMask(PackedRows(self.bits & other.bits), self.rows)
        return RowMask(RowNumbers(few._numbers[bits_at(many.bits, few._numbers)]), self.rows)

    def between(self, start: int, stop: int) -> RowIds:
        """Return the visible rows with start ≤ row < stop, ascending. ``start`` is a multiple of 8."""
        window = self.bits[start // 8 : (stop + 7) // 8]
        return np.flatnonzero(np.unpackbits(window, count=stop - start, bitorder="little")) + start

    def part(self, start: int, stop: int) -> RowMask:
        """Return the mask of the rows with start ≤ row < stop, numbered from 0. ``start`` is a multiple of 8,
        and ``stop`` too unless it is the last."""
        return RowMask(PackedRows(self.bits[start // 8 : (stop + 7) // 8]), stop - start)

    def to_bool(self) -> Bools:
        """bool, shape (rows,). A new array."""
        return bools_of(self.found, self.rows)

    @property
    def memory_bytes(self) -> int:
        """Bytes held now; grows when a form is first wanted: 8 for each visible row, or one bit per row."""
        return sum(a.nbytes for a in (self._bits, self._numbers, self._row_ids) if a is not None)


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    frozen = array.view()
    frozen.flags.writeable = False
    return frozen
