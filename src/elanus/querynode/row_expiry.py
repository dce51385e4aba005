"""Rows that expire at a moment of their own: the one in the collection's time-to-live field.

Which rows have expired depends on the read's timestamp alone, so a read as of an earlier moment gets the
answer it would have got then. As with `elanus.querynode.visibility`, no cached mask knows of it: each read
removes them by one comparison of all moments, and only of a block in which some may have expired.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.time_to_live import moment_us, moments_of_expiry
from elanus.core.timestamps import Timestamp
from elanus.index import RowMask
from elanus.querynode.visibility import Selection

Rows = npt.NDArray[np.int64]


class RowExpiry:
    """The moments at which a block's rows expire. ``column``: the values of the field."""

    __slots__ = ("_first", "_moments")

    def __init__(self, column: pa.Array) -> None:
        self._moments = moments_of_expiry(column)
        self._first = int(self._moments.min(initial=np.iinfo(np.int64).max))

    @property
    def nbytes(self) -> int:
        return int(self._moments.nbytes)

    def unexpired(self, selection: Selection, read_ts: Timestamp) -> Selection:
        """Return the selection without the rows that have expired at ``read_ts``."""
        now = moment_us(read_ts)
        if now < self._first or not selection.count:
            return selection
        return selection.both(RowMask.from_bool(self._moments > now))

    def unexpired_rows(self, rows: Rows, read_ts: Timestamp) -> Rows:
        """Return those of the rows that have not expired at ``read_ts``, in their order."""
        now = moment_us(read_ts)
        return rows if now < self._first else rows[self._moments[rows] > now]
