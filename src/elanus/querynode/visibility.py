"""Which rows of a block a read sees, with a cache of the answers.

Almost every read has a timestamp after everything that happened to a block. For such reads the visible rows
are one mask, and the visible rows that a filter matches another; both are computed once and kept until the
next delete in this block. A read pinned to an earlier timestamp computes its own.

Expired rows change from read to read, so no cached mask has them: each read that may find some removes them
from what is cached, by one comparison of all timestamps. Reads of a block without any do not compare.

Deletes are applied while reads run in other threads, and reads take no lock: a newly applied delete is
later than every timestamp that a running read can have (see `elanus.core.visibility`), so it does not matter
whether the read sees it. Results cached before the delete are replaced, not changed. Two threads that apply
deletes to the same block take turns.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, Timestamp
from elanus.core.visibility import NEVER_DELETED, Timestamps, apply_deletes, visible
from elanus.expr import BoundFilter
from elanus.expr.kept_by_filter import KeptByFilter
from elanus.index import RowMask

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


class Selection:
    """The rows of a block that a read may return. ``mask`` None: all of them. Immutable."""

    __slots__ = ("count", "mask", "total")

    def __init__(self, found: RowMask) -> None:
        self.count = found.count
        self.total = found.rows
        self.mask = None if found.count == found.rows else found

    def both(self, found: RowMask) -> Selection:
        """Return those of the selected rows that are among ``found``."""
        return Selection(found if self.mask is None else found.both(self.mask))

    def rows(self) -> Rows:
        """Return the selected row numbers, ascending."""
        return np.arange(self.total) if self.mask is None else self.mask.listed()


class _Settled:
    """The rows that reads at or after ``as_of`` see, as long as no further delete is applied."""

    __slots__ = ("alive", "as_of", "filtered")

    def __init__(self, as_of: Timestamp) -> None:
        self.as_of = as_of
        self.alive: Selection | None = None
        self.filtered: KeptByFilter[Selection] = KeptByFilter()


class Visibility:
    """The timestamps of a block's rows and of their deletes. Safe for many threads; `apply_deletes` takes a
    lock."""

    __slots__ = ("_applying", "_settled", "deleted_rows", "deleted_ts", "first_ts", "last_ts", "row_ts")

    def __init__(self, row_ts: Timestamps, deleted_ts: Timestamps | None = None) -> None:
        self.row_ts = row_ts
        self.deleted_ts = deleted_ts
        self.deleted_rows = 0
        self._applying = threading.Lock()
        self.first_ts = int(row_ts.min(initial=MAX_TIMESTAMP))
        self.last_ts = as_of = int(row_ts.max(initial=0, where=row_ts != MAX_TIMESTAMP))
        if deleted_ts is not None:
            deletes = deleted_ts[deleted_ts != NEVER_DELETED]
            self.deleted_rows = len(deletes)
            as_of = max(as_of, int(deletes.max(initial=0)))
        self._settled = _Settled(Timestamp(as_of))

    def apply_deletes(self, rows: Rows, delete_ts: Timestamps) -> int:
        """Apply deletes of ``rows[i]`` at ``delete_ts[i]``; return how many rows they deleted."""
        if not len(rows):
            return 0
        with self._applying:
            deleted_ts = self.deleted_ts
            if deleted_ts is None:
                deleted_ts = np.full(len(self.row_ts), NEVER_DELETED)
            died = apply_deletes(deleted_ts, self.row_ts, rows, delete_ts)
            if died:
                self.deleted_ts = deleted_ts
                self.deleted_rows += died
                self._settled = _Settled(Timestamp(max(self._settled.as_of, int(delete_ts.max()))))
        return died

    def at(self, read_ts: Timestamp) -> Selection:
        """Return the rows visible at ``read_ts``."""
        settled = self._settled
        if read_ts < settled.as_of:
            return self._select(read_ts)
        if settled.alive is None:
            settled.alive = self._select(settled.as_of)
        return settled.alive

    def sees(self, rows: Rows, read_ts: Timestamp) -> Mask:
        """Whether each of these rows is visible at ``read_ts``."""
        deleted_ts = self.deleted_ts
        return visible(self.row_ts[rows], None if deleted_ts is None else deleted_ts[rows], read_ts)

    def unexpired(self, selection: Selection, expired_until: Timestamp) -> Selection:
        """Return the selection without the rows that are not later than ``expired_until``."""
        if not self._has_expired(expired_until) or not selection.count:
            return selection
        return selection.both(RowMask.from_bool(self.row_ts > expired_until))

    def unexpired_rows(self, rows: Rows, expired_until: Timestamp) -> Rows:
        """Return those of the rows that are later than ``expired_until``, in their order."""
        return rows[self.row_ts[rows] > expired_until] if self._has_expired(expired_until) else rows

    def _has_expired(self, expired_until: Timestamp) -> bool:
        return expired_until != NO_TIMESTAMP and expired_until >= self.first_ts

    def filtered(self, read_ts: Timestamp, row_filter: BoundFilter) -> Selection | None:
        """Return what `filter_by` cached for this filter, if it is valid for ``read_ts``."""
        settled = self._settled
        return settled.filtered.get(row_filter) if read_ts >= settled.as_of else None

    def filter_by(self, read_ts: Timestamp, row_filter: BoundFilter, matching: RowMask) -> Selection:
        """Return the rows visible at ``read_ts`` that the filter matches, and cache them for later reads."""
        settled = self._settled
        if read_ts < settled.as_of:
            return self._select(read_ts).both(matching)
        selection = self.at(settled.as_of).both(matching)
        settled.filtered.put(row_filter, selection)
        return selection

    def _select(self, ts: Timestamp) -> Selection:
        return Selection(RowMask.from_bool(visible(self.row_ts, self.deleted_ts, ts)))

    def cached_masks(self) -> list[RowMask]:
        """Return the answers that are cached."""
        settled = self._settled
        if settled.alive is None:
            return []  # no filter has been applied either
        selections = [settled.alive, *(settled.filtered.values() if len(settled.filtered) else ())]
        return [selection.mask for selection in selections if selection.mask is not None]

    @property
    def memory_bytes(self) -> int:
        return self.row_ts.nbytes + (0 if self.deleted_ts is None else self.deleted_ts.nbytes)
