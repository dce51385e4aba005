"""Bugs that show in a collection of which not all partitions are loaded."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from elanus.querynode.followed_vchannel import FollowedVchannel
from elanus.sim import plan


def _with_partial_loads(
    plant: Callable[[pytest.MonkeyPatch], None],
) -> Callable[[pytest.MonkeyPatch], None]:
    """Hunted where it can be found: every seed has them."""

    def planted(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(plan, "has_partial_loads", lambda seed: True)
        plant(patch)

    planted.__doc__ = plant.__doc__
    return planted


@_with_partial_loads
def rows_of_a_new_partition_not_taken_in(patch: pytest.MonkeyPatch) -> None:
    """A node serves a partition that is loaded now, whose rows it has passed over in the log."""
    patch.setattr(FollowedVchannel, "holds", lambda self, wanted: self.follower is not None)


BUGS = (("rows of a new partition not taken in", rows_of_a_new_partition_not_taken_in, frozenset({"VIS1"})),)
