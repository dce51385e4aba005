"""Fetching columns of rows in several blocks, in a given order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.querynode.block import Block

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Row ``rows[i]`` of ``blocks[block_of[i]]``, for each i."""

    blocks: Sequence[Block]
    block_of: Rows
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, places: Rows) -> FoundRows:
        """Return the rows at these places, in this order."""
        return FoundRows(self.blocks, self.block_of[places], self.rows[places])

    def column(self, name: str, data_type: pa.DataType) -> pa.Array:
        """Return a field's values, index-aligned.

        ``data_type``: the field's Arrow type, for when there are no rows.
        """
        if len(self.blocks) == 1 and len(self.rows):
            return self.blocks[0].take(name, self.rows)
        parts, places = [], []
        for number in np.unique(self.block_of).tolist():
            places.append(np.flatnonzero(self.block_of == number))
            parts.append(self.blocks[number].take(name, self.rows[places[-1]]))
        if not parts:
            return pa.array([], data_type)
        if len(parts) == 1:
            return parts[0]
        order = np.empty(len(self.rows), dtype=np.int64)
        order[np.concatenate(places)] = np.arange(len(self.rows))
        return pa.concat_arrays(parts).take(pa.array(order))

    def timestamps(self) -> Rows:
        """Return the rows' own timestamps, index-aligned."""
        stamps = np.empty(len(self.rows), dtype=np.int64)
        for number in np.unique(self.block_of).tolist():
            places = self.block_of == number
            stamps[places] = self.blocks[number].row_ts[self.rows[places]]
        return stamps


def rows_of_blocks(blocks: Sequence[Block], rows: Sequence[Rows]) -> FoundRows:
    """Return the rows ``rows[i]`` of ``blocks[i]``, for all i."""
    if not blocks:
        return no_rows()
    block_of = np.repeat(np.arange(len(blocks)), [len(r) for r in rows])
    return FoundRows(blocks, block_of, np.concatenate(rows))


def no_rows() -> FoundRows:
    return FoundRows((), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
