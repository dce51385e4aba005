"""Where Arrow's lookups of floating numbers differ from comparisons: it looks numbers up by their bits.

So 0.0 would not find -0.0, which is equal to it, and NaN would find NaN, which is not.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def lookup_set(members: pa.Array) -> pa.Array:
    """The distinct members to look up, without NaN, which no number is equal to. shape (≤ n,)"""
    if not pa.types.is_floating(members.type):
        return members.unique()
    return _one_zero(members.filter(pc.invert(pc.is_nan(members)))).unique()


def looked_up(values: pa.Array, members: pa.Array) -> pa.Array:
    """The values as they are found in a `lookup_set`. shape (n,)"""
    if not pa.types.is_floating(values.type) or not pc.any(pc.equal(members, 0)).as_py():
        return values
    return _one_zero(values)


def _one_zero(values: pa.Array) -> pa.Array:
    return pc.add(values, pa.scalar(0.0, values.type))  # -0.0 + 0.0 is 0.0; any other number stays
