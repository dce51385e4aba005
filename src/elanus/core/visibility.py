"""Which rows a read sees: the one rule of multi-version reads, over whole arrays.

A row exists from its own timestamp on, until the first delete of its primary key that is later than the
row itself: it is visible at ``read_ts`` when ``row_ts <= read_ts < deleted_ts``. Deletes keep their
timestamps, so a read pinned to an older moment still sees rows deleted since. For the same reason a
delete may be entered while reads run: it is later than every timestamp those reads can request, and
does not change what they see.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elanus.core.timestamps import MAX_TIMESTAMP, Timestamp

Timestamps = npt.NDArray[np.int64]
NEVER_DELETED = np.int64(MAX_TIMESTAMP)


def visible(row_ts: Timestamps, deleted_ts: Timestamps | None, read_ts: Timestamp) -> npt.NDArray[np.bool_]:
    """Return the visibility of each row. ``deleted_ts`` None: no row was ever deleted. shape (n,) → (n,)."""
    mask = row_ts <= read_ts
    if deleted_ts is not None:
        mask &= deleted_ts > read_ts
    return mask


def apply_deletes(
    deleted_ts: Timestamps, row_ts: Timestamps, rows: npt.NDArray[np.int64], delete_ts: Timestamps
) -> int:
    """Enter deletes of ``rows[i]`` at ``delete_ts[i]`` in ``deleted_ts``; return how many rows they deleted.

    ``deleted_ts`` and ``row_ts`` have one entry for each row of the segment; ``deleted_ts`` is changed in
    place. A row may be named several times; its earliest delete after the row's own timestamp counts. Deletes
    at or before it have no effect, because the row is newer. Entering the same deletes again changes nothing.
    """
    concerns = row_ts[rows] < delete_ts
    rows, delete_ts = rows[concerns], delete_ts[concerns]
    alive = np.unique(rows[deleted_ts[rows] == NEVER_DELETED])
    np.minimum.at(deleted_ts, rows, delete_ts)
    return len(alive)
