"""How fast query nodes apply what they read, for bugs that few seeds find."""

from __future__ import annotations

import pytest


def everything_visited(patch: pytest.MonkeyPatch) -> None:
    """Deletes visit every segment whose range they touch, and rows are prepared on the loop.

    Both change what happens between two steps of a seed. The seeds of some bugs were searched this way.
    """
    patch.setattr("elanus.querynode.key_ranges.worth_asking", lambda keys: False)
    patch.setattr("elanus.sim.builders.INLINE_ROWS_MAX", 1 << 30)
