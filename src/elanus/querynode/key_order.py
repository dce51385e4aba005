"""The rows of a block in the order of their primary keys, for reads that want the smallest keys first."""

from __future__ import annotations

import bisect
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.reduce import PrimaryKeys
from elanus.querynode.keys import SortedKeys

Rows = npt.NDArray[np.int64]


class KeyOrder:
    """Places 0, 1, … are the rows by ascending key; equal keys are in the order of their rows. Immutable.

    Numeric keys are sorted already. `SortedKeys` has strings in the order of their codes, so they are sorted
    here; that takes no memory if the rows are in order, as those of flushed segments are.
    """

    __slots__ = ("_keys", "_order")

    def __init__(self, keys: SortedKeys) -> None:
        self._keys = keys
        self._order: npt.NDArray[np.int32] | None = keys.order
        if keys.numbers is None:
            strings = keys.keys
            ascending = pc.all(pc.less_equal(strings[:-1], strings[1:]), min_count=0).as_py()
            self._order = None if ascending else pc.sort_indices(strings).to_numpy().astype(np.int32)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def memory_bytes(self) -> int:
        """Bytes held in addition to those of the keys."""
        return 0 if self._order is None or self._order is self._keys.order else self._order.nbytes

    def rows(self, start: int, stop: int) -> Rows:
        """Return the rows at the places from ``start`` to ``stop``."""
        if self._order is None:
            return np.arange(start, stop)
        return self._order[start:stop].astype(np.int64)

    def key(self, place: int) -> int | str:
        if self._keys.numbers is not None:
            return int(self._keys.codes[place])
        row = place if self._order is None else int(self._order[place])
        key: str = self._keys.keys[row].as_py()
        return key

    def keys_of(self, rows: Rows) -> PrimaryKeys:
        """Return the keys of rows, index-aligned."""
        numbers = self._keys.numbers
        return self._keys.keys.take(pa.array(rows)) if numbers is None else numbers[rows]

    def between(self, rows: Rows, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Whether each row has a key of the places from ``start`` to ``stop``; there must be one."""
        first, last = self.key(start), self.key(stop - 1)
        keys = self._keys.keys.take(pa.array(rows))
        inside = pc.and_(pc.greater_equal(keys, first), pc.less_equal(keys, last))
        return np.asarray(inside.to_numpy(zero_copy_only=False), dtype=np.bool_)

    def place(self, key: int | str, side: Literal["left", "right"]) -> int:
        """Return the first place whose key is not below ``key`` (``left``), or is above it (``right``)."""
        if self._keys.numbers is not None:
            return int(np.searchsorted(self._keys.codes, np.int64(key), side))
        find = bisect.bisect_left if side == "left" else bisect.bisect_right
        return find(range(len(self)), key, key=self.key)
