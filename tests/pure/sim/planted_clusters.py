"""Bugs of compaction by a clustering key, planted as `planted` says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from elanus.pipeline import clustering


def rows_lost_when_a_cluster_is_split(patch: pytest.MonkeyPatch) -> None:
    """The rows of an input that begin the last cluster are left out, and no sum is compared."""
    split = clustering.split

    def losing(*args: Any) -> Any:
        chunks = split(*args)
        return chunks if len(chunks) < 2 else chunks[:-1]

    patch.setattr(clustering, "split", losing)


def clusters_served_one_by_one(patch: pytest.MonkeyPatch) -> None:
    """Each cluster takes its inputs' place as soon as it can, whether or not the others are there."""
    patch.setattr("elanus.querycoord.handoff._together", lambda split, named: [])


BUGS: tuple[tuple[str, Callable[[pytest.MonkeyPatch], None], frozenset[str], int, int], ...] = (
    (
        "rows lost when a cluster is split",
        rows_lost_when_a_cluster_is_split,
        frozenset({"SEG1", "VIS1", "VIS2", "VIS3"}),
        6,
        153,
    ),
    ("clusters served one by one", clusters_served_one_by_one, frozenset({"VIS1", "VIS2"}), 12, 159),
)
"""Name, patch, the invariants under which it counts as found, how many seeds, and the first.

Earlier seeds have no clusters (`elanus.sim.client_plans`).
"""
