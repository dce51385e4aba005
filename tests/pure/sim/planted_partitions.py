"""Bugs that show in a collection with many partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from elanus.pipeline.range_files import RangeFiles
from elanus.querynode.pack_absorber import PackAbsorber
from elanus.sim import plan


def _with_partitions(plant: Callable[[pytest.MonkeyPatch], None]) -> Callable[[pytest.MonkeyPatch], None]:
    """Hunted where it can be found: every seed has them."""

    def planted(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(plan, "has_many_partitions", lambda seed: True)
        plant(patch)

    planted.__doc__ = plant.__doc__
    return planted


@_with_partitions
def spilled_rows_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A flush forgets the segments of a range for which it had no open file."""
    finish = RangeFiles.finish

    def finish_open(self: RangeFiles) -> Any:
        self._spilled.clear()
        return finish(self)

    patch.setattr(RangeFiles, "finish", finish_open)


@_with_partitions
def drop_takes_all_partitions(patch: pytest.MonkeyPatch) -> None:
    """The drop of a partition ends the sealed segments of all partitions of its vchannel."""

    def drop(self: PackAbsorber, vchannel: str, dropped: Any) -> None:
        if dropped:
            self._collection.drop_sealed(lambda segment: segment.vchannel == vchannel)

    patch.setattr(PackAbsorber, "_drop_partitions", drop)


BUGS = (
    ("spilled rows forgotten", spilled_rows_forgotten, frozenset({"SEG1", "VIS1", "VIS3"})),
    ("drop takes all partitions", drop_takes_all_partitions, frozenset({"VIS1", "VIS3"})),
)
