"""Add rows to a faiss index chunk by chunk, in the form for comparison: at unit length under COSINE."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elanus.core.metrics import Metric
from elanus.index.spec import IndexSpec, Progress
from elanus.index.unit import UnitRows, joined, split, unit

CHUNK_ROWS = 8192


def add_in_chunks(spec: IndexSpec, index: Any, vectors: Any, report: Progress) -> UnitRows | None:
    """Add all rows. Under COSINE, return the data to restore the original vectors."""
    ways_back: list[UnitRows] = []
    for start, stored in _chunks(vectors):
        chunk = spec.form.compared(stored)
        if spec.metric_type is Metric.COSINE:
            chunk, way_back = split(chunk)
            ways_back.append(way_back)
        index.add(chunk)
        report(min(1.0, (start + len(chunk)) / len(vectors)))
    return joined(ways_back) if ways_back else None


def encode_in_chunks(spec: IndexSpec, index: Any, vectors: Any, report: Progress | None = None) -> None:
    """Add all rows, as `add_in_chunks` does, with no way back."""
    for start, stored in _chunks(vectors):
        index.add(compared(spec, stored))
        if report is not None:
            report(min(1.0, (start + len(stored)) / len(vectors)))


def compared(spec: IndexSpec, vectors: Any) -> Any:
    """Vectors in the form for comparison: at unit length under COSINE."""
    rows = spec.form.compared(vectors)
    return unit(rows) if spec.metric_type is Metric.COSINE else rows


def _chunks(vectors: Any) -> Iterator[tuple[int, Any]]:
    for start in range(0, len(vectors), CHUNK_ROWS):
        yield start, vectors[start : start + CHUNK_ROWS]
