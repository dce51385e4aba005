"""``random_sample``: which rows a sample has.

Whether a row belongs to a sample depends on its primary key and the sample's seed alone, not on which other
rows are looked at. So the rows of a sample are the same in however many parts and in whatever order a filter
is evaluated, and each matching row is chosen with the same probability, independently of the others.
"""

from __future__ import annotations

import secrets

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.hashing import hash_strings

_WEYL, _MIX_1, _MIX_2 = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def new_seed() -> int:
    """A seed of 64 bits that nobody can predict, so that every compiled filter has a sample of its own."""
    return secrets.randbits(64)


def sampled(keys: pa.Array, factor: float, seed: int) -> npt.NDArray[np.bool_]:
    """Which rows are in the sample. shape (rows,)

    ``keys``: primary keys, int64 or string, without nulls. ``factor``: the share of rows, within (0, 1).
    """
    if pa.types.is_string(keys.type):
        codes = hash_strings(keys).astype(np.uint64)
    else:
        codes = keys.to_numpy().astype(np.int64).view(np.uint64)
    return _mixed(codes + _mixed(np.array([seed], np.uint64))) < np.uint64(factor * 2.0**64)


def _mixed(codes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64 (Steele, Lea, Flood 2014): every bit of a code changes about half of the bits."""
    mixed = codes + _WEYL
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
    return mixed ^ (mixed >> np.uint64(31))
