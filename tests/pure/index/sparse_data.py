"""Random sparse vectors, and their inner products by a plain dictionary: the oracle of the sparse tests."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from elanus.core.sparse import SparseRows

Vector = dict[int, float]


def vectors(count: int, terms: int, seed: int, *, pairs_max: int = 12, scale: int = 1) -> list[Vector]:
    """Vectors with up to ``pairs_max`` values, frequent terms more often; every tenth is empty."""
    rng = np.random.default_rng(seed)
    found = []
    for n in range(count):
        size = 0 if n % 10 == 9 else int(rng.integers(1, pairs_max))
        indices = np.unique((rng.random(size) ** 3 * terms).astype(np.int64) * scale)
        values = rng.integers(1, 64, len(indices)) / 16  # products and sums of these are exact in float32
        found.append(dict(zip(indices.tolist(), values.tolist(), strict=True)))
    return found


def packed(vector: Vector) -> bytes:
    """A vector as clients send it."""
    pairs = np.array(sorted(vector.items()), dtype=[("index", "<u4"), ("value", "<f4")])
    return pairs.tobytes()


def column_of(rows: list[Vector]) -> pa.Array:
    return pa.array([packed(row) for row in rows], pa.binary())


def rows_of(rows: list[Vector]) -> SparseRows:
    return SparseRows.from_column(column_of(rows))


def product(query: Vector, row: Vector) -> float:
    return sum(value * row[index] for index, value in query.items() if index in row)
