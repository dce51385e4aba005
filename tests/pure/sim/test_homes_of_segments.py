"""The simulator's judge follows compactions to where the rows of a segment are now."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from elanus.core.ids import SegmentID
from elanus.sim.records import Records
from elanus.sim.trace import Trace

pytestmark = pytest.mark.sim

GENERATIONS, CLUSTERS = 60, 4


def test_clusters_that_are_cut_again_and_again_are_followed_once() -> None:
    """Each cluster has rows of all clusters before: there are more courses than could be followed."""

    def unused(*_: Any) -> Any:
        raise AssertionError("nothing is recorded here")

    records = Records(unused, Trace(lambda: 0.0), unused, unused)
    of = [
        [SegmentID(1 + CLUSTERS * generation + n) for n in range(CLUSTERS)]
        for generation in range(GENERATIONS)
    ]
    for inputs, outputs in pairwise(of):
        records._made_into.update((segment_id, set(outputs)) for segment_id in inputs)
    assert sorted(records.homes_of(of[0][0])) == of[-1]
