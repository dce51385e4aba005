"""Add rows to a faiss index chunk by chunk, in the form for comparison: at unit length under COSINE."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from elanus.core.metrics import Metric
from elanus.index.library import faiss
from elanus.index.spec import IndexSpec, Progress
from elanus.index.unit import UnitRows, joined, split, unit

CHUNK_ROWS = 8192
LENGTH_MAX = 2.0**60
"""Vectors up to this length have finite distances, and sums of many distances are finite, too."""


def add_in_chunks(
    spec: IndexSpec, add: Callable[[Any], None], vectors: Any, report: Progress
) -> UnitRows | None:
    """Add all rows. Under COSINE, return the data to restore the original vectors."""
    ways_back: list[UnitRows] = []
    for start, stored in _chunks(vectors):
        chunk = spec.form.compared(stored)
        if spec.metric_type is Metric.COSINE:
            chunk, way_back = split(chunk)
            ways_back.append(way_back)
        add(chunk)
        report(min(1.0, (start + len(chunk)) / len(vectors)))
    return joined(ways_back) if ways_back else None


def encode_in_chunks(
    spec: IndexSpec,
    index: Any,
    vectors: Any,
    report: Progress | None = None,
    largest: float | None = None,
) -> None:
    """Add all rows as `compared` makes them, with no way back. ``largest``: what a component is cut to."""
    for start, stored in _chunks(vectors):
        rows = compared(spec, stored)
        index.add(rows if largest is None else np.clip(rows, -largest, largest))
        if report is not None:
            report(min(1.0, (start + len(stored)) / len(vectors)))


def add_to_lists(lists: Any, rows: Any) -> None:
    """Add rows to inverted lists that keep them unchanged. Those out of range are in the list that is nearest
    to what `within_range` makes of them: by infinite distances they would be in none."""
    near = within_range(rows)
    if near is rows:
        lists.add(rows)
        return
    places = np.ascontiguousarray(lists.quantizer.search(near, 1)[1][:, 0])
    lists.add_core(len(rows), faiss.swig_ptr(rows), None, faiss.swig_ptr(places))


def compared(spec: IndexSpec, vectors: Any) -> Any:
    """Vectors in the form for comparison that approximations are made of: at unit length under COSINE, and
    within range otherwise."""
    rows = spec.form.compared(vectors)
    return unit(rows) if spec.metric_type is Metric.COSINE else within_range(rows)


def within_range(rows: Any) -> Any:
    """Cut the components of rows that may be longer than `LENGTH_MAX`; the same array if there are none.

    float32 (n, d). faiss's k-means ends the process at an infinite distance.
    """
    largest = np.float32(LENGTH_MAX / rows.shape[1] ** 0.5)
    if not rows.size or (rows.max() <= largest and rows.min() >= -largest):
        return rows
    return np.clip(rows, -largest, largest)


def _chunks(vectors: Any) -> Iterator[tuple[int, Any]]:
    for start in range(0, len(vectors), CHUNK_ROWS):
        yield start, vectors[start : start + CHUNK_ROWS]
