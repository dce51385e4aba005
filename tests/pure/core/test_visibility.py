"""A row is visible from its timestamp until the first delete later than it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.timestamps import Timestamp
from elanus.core.visibility import NEVER_DELETED, apply_deletes, visible

times = st.integers(1, 9)


@given(st.lists(times, min_size=1, max_size=6), st.data(), times)
def test_visible_means_written_and_not_yet_deleted(
    rows: list[int], data: st.DataObject, read_ts: int
) -> None:
    row = st.integers(0, len(rows) - 1)
    deletes = data.draw(st.lists(st.tuples(row, times), max_size=8))
    row_ts = np.array(rows, dtype=np.int64)
    deleted_ts = np.full(len(rows), NEVER_DELETED)
    named = np.array([r for r, _ in deletes], dtype=np.int64)
    delete_ts = np.array([d for _, d in deletes], dtype=np.int64)

    died = apply_deletes(deleted_ts, row_ts, named, delete_ts)
    again = apply_deletes(deleted_ts, row_ts, named, delete_ts)

    first = [min((d for r, d in deletes if r == i and d > ts), default=None) for i, ts in enumerate(rows)]
    expected = [ts <= read_ts and (d is None or read_ts < d) for ts, d in zip(rows, first, strict=True)]
    assert visible(row_ts, deleted_ts, Timestamp(read_ts)).tolist() == expected
    assert (died, again) == (sum(d is not None for d in first), 0)


def test_without_deletes_only_the_rows_own_timestamps_count() -> None:
    assert visible(np.array([1, 5, 9]), None, Timestamp(5)).tolist() == [True, True, False]
