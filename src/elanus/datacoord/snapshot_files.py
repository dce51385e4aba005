"""Which files snapshots keep, and of which segments: compact, since named snapshots stay for months.

The functions work through all of a snapshot's files: they belong in threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elanus.core.ids import SegmentID
from elanus.core.path_digests import PathDigests
from elanus.storage.paths import segments_of


@dataclass(frozen=True, slots=True)
class SnapshotFiles:
    """``paths``: the files that a snapshot keeps, its own object among them. ``segments``: the int64 ids of
    the segments that its files of rows were written for, sorted."""

    paths: PathDigests
    segments: npt.NDArray[np.int64]

    @classmethod
    def of(cls, paths: Iterable[str]) -> SnapshotFiles:
        paths = frozenset(paths)
        return cls(PathDigests.of(paths), np.unique(np.fromiter(segments_of(paths), np.int64)))


def segments_in(kept: Sequence[SnapshotFiles]) -> frozenset[SegmentID]:
    """Return the segments that any of them keeps files of."""
    if not kept:
        return frozenset()
    united = np.unique(np.concatenate([one.segments for one in kept]))
    return frozenset(map(SegmentID, united.tolist()))
