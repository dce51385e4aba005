"""Where Arrow's lookups of floating numbers differ from comparisons: it looks numbers up by their bits.

So 0.0 would not find -0.0, which is equal to it, and NaN would find NaN, which is not.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def lookup_set(members: pa.Array) -> pa.Array:
    """The distinct members to look up: both zeros if there is one, and no NaN, which nothing is equal to."""
    if not pa.types.is_floating(members.type):
        return members.unique()
    members = members.filter(pc.invert(pc.is_nan(members)))
    if not _has_zero(members):
        return members.unique()
    return pa.concat_arrays([members, pa.array([0.0, -0.0], members.type)]).unique()


def with_one_zero(values: pa.Array, members: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Both with 0.0 for -0.0, where it makes a difference. ``members`` stay distinct.

    shapes (n,), (m,) → (n,), (≤ m,)
    """
    if not pa.types.is_floating(members.type) or not _has_zero(members):
        return values, members
    zero = pa.scalar(0.0, members.type)  # -0.0 + 0.0 is 0.0; any other number stays
    return pc.add(values, zero), pc.add(members, zero).unique()


def _has_zero(members: pa.Array) -> bool:
    return bool(pc.any(pc.equal(members, 0)).as_py())
