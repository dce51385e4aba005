"""Vectors as points of a plane: their two principal axes, by subspace iteration.

The covariance is never formed: it would have dim² entries, and a singular value decomposition of a sample
takes longer. Each step multiplies the sample with a few vectors only (Halko, Martinsson and Tropp, 2011:
"Finding structure with randomness", algorithm 4.4). The start is fixed: equal samples give equal pictures.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_AXES = 2
_SPARE = 8
"""Further vectors that are iterated: the first two converge faster with them."""
_STEPS = 12
_SEED = 20


class Projection(NamedTuple):
    """``points``: (n, 2), along the first axis and the second. ``share``: of the sample's variance that they
    show, 0 to 1; 1 for a sample without any."""

    points: Floats
    share: float


def projected(vectors: npt.NDArray[np.generic]) -> Projection:
    """Project vectors of shape (n, dim) onto their two principal axes.

    Takes about 24 · n · dim · 10 multiplications. Axes point to where their largest coordinate is positive.
    """
    floats = np.asarray(vectors, np.float32)
    count, dim = floats.shape
    points = np.zeros((count, _AXES), np.float32)
    if count == 0 or dim == 0:
        return Projection(points, 1.0)
    centered = floats - floats.mean(axis=0)
    variance = float(np.square(centered).sum(dtype=np.float64))
    if not variance:
        return Projection(points, 1.0)
    width = min(_AXES + _SPARE, count, dim)
    basis = np.random.default_rng(_SEED).standard_normal((dim, width)).astype(np.float32)
    for _ in range(_STEPS):
        basis = np.linalg.qr(centered.T @ (centered @ basis))[0]
    inside = centered @ basis
    _, _, turned = np.linalg.svd(inside, full_matrices=False)
    found = (inside @ turned.T)[:, :_AXES]
    signs = np.sign(found[np.abs(found).argmax(axis=0), np.arange(found.shape[1])])
    found *= np.where(signs == 0, 1, signs)
    points[:, : found.shape[1]] = found
    return Projection(points, min(1.0, float(np.square(points).sum(dtype=np.float64)) / variance))
