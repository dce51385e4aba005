"""BITMAP: one bit per row and distinct value, for fields with few distinct values.

The answer to a lookup is the union of some rows of a matrix of packed bits: it costs the same for any number
of matching rows, so there is no share of rows beyond which a scan is quicker. With more than ``KEYS_MAX``
distinct values the matrix would be larger than the row numbers themselves, and the index is `Postings`
instead.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elanus.core.lookup import Found, Holds, HoldsSuch, Lookup, PackedRows
from elanus.index.base import ScalarIndex
from elanus.index.files import IndexFileContent, write_index_file
from elanus.index.scalar.keys import Keys, keys_of_file
from elanus.index.scalar.postings import Grouped
from elanus.index.spec import IndexSpec

KEYS_MAX = 256
UNITED_MAX = 32
"""A union of more values than this is slower than a scan."""

Bits = npt.NDArray[np.uint8]


class Bitmap(ScalarIndex):
    """Packed bits by key. ``bits``: (keys, ceil(rows / 8)), little bit order; ``counts``: rows per key."""

    rows_share_max = 1.0
    has_bits = True

    def __init__(
        self,
        spec: IndexSpec,
        rows: int,
        keys: Keys,
        bits: Bits,
        counts: npt.NDArray[np.int64],
        *,
        of_elements: bool,
    ) -> None:
        super().__init__(spec, rows)
        self._keys = keys
        self._bits = bits
        self._counts = counts
        self._of_elements = of_elements
        self._last: tuple[Lookup | None, npt.NDArray[np.int64] | None] = (None, None)

    @classmethod
    def of(cls, spec: IndexSpec, rows: int, groups: Grouped) -> Bitmap:
        starts = groups.with_starts()
        bits = np.zeros((len(groups.keys), (rows + 7) // 8), np.uint8)
        for key in range(len(groups.keys)):
            held = np.zeros(rows, np.bool_)
            held[groups.rows[starts[key] : starts[key + 1]]] = True
            bits[key] = np.packbits(held, bitorder="little")
        return cls(spec, rows, groups.keys, bits, np.diff(starts), of_elements=groups.of_elements)

    @property
    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        flag = {"of_elements": np.array([self._of_elements])}
        return {**self._keys.arrays, "bits": self._bits, "counts": self._counts, **flag}

    @property
    def memory_bytes(self) -> int:
        return sum(array.nbytes for array in self._arrays.values())

    def save(self, path: Path) -> None:
        write_index_file(path, IndexFileContent(self.spec, self.rows, None, self._arrays))

    @classmethod
    def from_file(cls, spec: IndexSpec, content: IndexFileContent) -> Bitmap:
        arrays = content.arrays
        return cls(
            spec,
            content.rows,
            keys_of_file(arrays),
            arrays["bits"],
            arrays["counts"],
            of_elements=bool(arrays["of_elements"][0]),
        )

    def estimate(self, lookup: Lookup) -> int | None:
        numbers = self._numbers(lookup)
        if numbers is None:
            return None
        counts = self._counts[numbers]
        if isinstance(lookup, Holds) and lookup.need_all:
            return int(counts.min()) if len(numbers) == len(lookup.values) else 0
        return min(int(counts.sum()), self.rows)

    def find(self, lookup: Lookup) -> Found | None:
        numbers = self._numbers(lookup)
        if numbers is None:
            return None
        need_all = isinstance(lookup, Holds) and lookup.need_all
        if need_all and isinstance(lookup, Holds) and len(numbers) < len(lookup.values):
            numbers = numbers[:0]
        if not len(numbers):
            return PackedRows(np.zeros(self._bits.shape[1], np.uint8))
        first, *others = numbers.tolist()
        bits = self._bits[first]
        if others:
            join = np.bitwise_and if need_all else np.bitwise_or
            bits = join(bits, self._bits[others[0]])
            for number in others[1:]:
                join(bits, self._bits[number], out=bits)
        return PackedRows(bits)

    def _numbers(self, lookup: Lookup) -> npt.NDArray[np.int64] | None:
        """Return the numbers of the matching keys; None if there are too many to unite.

        Those of an estimate are kept for the search that follows.
        """
        last, numbers = self._last
        if last is not lookup:
            numbers = self._found_numbers(lookup)
            self._last = lookup, numbers
        return numbers

    def _found_numbers(self, lookup: Lookup) -> npt.NDArray[np.int64] | None:
        if isinstance(lookup, Holds | HoldsSuch) is not self._of_elements:
            return None
        spans = self._keys.spans(lookup)
        if spans is None or len(spans) > UNITED_MAX:
            return None
        width = sum((spans[:, 1] - spans[:, 0]).tolist())
        if width > UNITED_MAX:
            return None
        if width == len(spans):
            return spans[:, 0]
        return np.concatenate([np.arange(first, last) for first, last in spans.tolist()])
