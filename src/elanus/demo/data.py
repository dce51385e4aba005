"""The demo's vectors, and the exact answers that the server's answers are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

SHIPPED_FILE = Path(__file__).parents[3] / "examples" / "data" / "mnist-small.npz"
"""Part of the source tree. An installed wheel does not contain it; the demo then requires ``--data``."""


@dataclass(frozen=True, slots=True)
class Digits:
    """``train`` (n, d) and ``queries`` (m, d) as float32; ``labels`` (n,): the class of each row."""

    train: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    queries: npt.NDArray[np.float32]


def read(path: Path) -> Digits:
    """Read an ``.npz`` with ``train``, ``train_label`` and ``test``. Raises `ValueError`, `OSError`."""
    with np.load(path) as arrays:
        missing = {"train", "train_label", "test"} - set(arrays.files)
        if missing:
            raise ValueError(f"{path} lacks the arrays {', '.join(sorted(missing))}")
        return Digits(
            arrays["train"].astype(np.float32),
            arrays["train_label"].astype(np.int64),
            arrays["test"].astype(np.float32),
        )


def exact_neighbors(
    queries: npt.NDArray[np.float32], rows: npt.NDArray[np.float32], k: int
) -> npt.NDArray[np.int64]:
    """Return the k rows nearest to each query by Euclidean distance, nearest first: shape (m, k)."""
    # |q - r|² without the term |q|², which is the same for all rows of one query
    distances = (rows * rows).sum(axis=1) - 2 * (queries @ rows.T)
    nearest = np.argpartition(distances, k, axis=1)[:, :k]
    order = np.argsort(np.take_along_axis(distances, nearest, axis=1), axis=1)
    return np.take_along_axis(nearest, order, axis=1)


def recall(found: list[list[int]], exact: npt.NDArray[np.int64]) -> float:
    """Return the fraction of the exact neighbors that was found, over all queries."""
    hits = sum(len(set(ids) & set(row)) for ids, row in zip(found, exact.tolist(), strict=True))
    return hits / exact.size
