"""Planted bugs in clones: in what they show, and in what garbage collection leaves them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from elanus.core.ids import NO_SEGMENT
from elanus.core.segments import SegmentInfo
from elanus.core.timestamps import Timestamp
from elanus.datacoord import clones, references

SEEDS, FIRST = 3, 30
_SEEN = frozenset({"VIS2", "DEL1"})
"""Seeds with clients that clone."""


def references_of_clones_ignored(patch: pytest.MonkeyPatch) -> None:
    """Garbage collection looks at files that belong to segments of their own collection only."""
    names_files = references._names_files

    def own(info: SegmentInfo) -> bool:
        return names_files(info) and info.lender == NO_SEGMENT

    patch.setattr(references, "_names_files", own)


def clone_forgets_the_last_deletes(patch: pytest.MonkeyPatch) -> None:
    """A clone has the delta logs that end before its moment, and not the one that goes beyond it."""

    def whole(logs: Iterable[Any], moment: Timestamp) -> tuple[Any, ...]:
        return tuple(log for log in logs if log.file.ts_max <= moment)

    patch.setattr(clones, "deletes_as_of", whole)


def clone_has_later_rows(patch: pytest.MonkeyPatch) -> None:
    """A clone has its source's files with all rows that are in them."""
    patch.setattr(clones, "as_of", lambda manifests, moment: tuple(m for m in manifests if m.insert_logs))


BUGS: tuple[tuple[str, Callable[[pytest.MonkeyPatch], None], frozenset[str], int, int], ...] = (
    ("references of clones ignored", references_of_clones_ignored, frozenset({"GC1"}), SEEDS, FIRST),
    (
        "clone forgets the last deletes",
        clone_forgets_the_last_deletes,
        _SEEN,
        SEEDS,
        FIRST,
    ),
    ("clone has later rows", clone_has_later_rows, frozenset({"VIS2", "VIS4"}), SEEDS, FIRST),
)
"""Name, patch, the invariants under which it counts as found, how many seeds it may take, and the first."""
