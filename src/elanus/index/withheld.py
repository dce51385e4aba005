"""Rows of a graph that serve as queries as if they were not in it.

A row finds itself and its neighbors too easily: its own node is linked to them with the full care of the
build. So the links that leave the node are hidden while the row is a query; a walk that arrives there comes
to nothing. Only rows that were added late serve: around others, later rows were linked by way of them, and
would miss them. On data without structure, with structure and with clusters, recall was that of queries
which had never been in the graph, within three hundredths, and mostly below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from elanus.index.adding import CHUNK_ROWS
from elanus.index.hits import RowIds
from elanus.index.library import faiss

LATE_SHARE = 1 / 8
"""This share of the rows is late; but at least one chunk is, in which faiss chooses the order."""
_NO_LINK = -1


def late_rows(graph: Any) -> RowIds:
    """Return the rows that can be withheld, ascending: late rows that are only in the lowest layer.

    The entry point of the graph is never among them.
    """
    first = graph.ntotal - max(CHUNK_ROWS, round(graph.ntotal * LATE_SHARE))
    layers: npt.NDArray[np.int32] = faiss.vector_to_array(graph.hnsw.levels)
    rows: RowIds = np.flatnonzero(layers == 1)
    late: RowIds = rows[(rows >= first) & (rows != graph.hnsw.entry_point)]
    return late


@contextmanager
def withheld(graph: Any, rows: RowIds) -> Iterator[None]:
    """Hide the links of these rows inside the block. The graph must not be searched by others meanwhile."""
    inner = graph.hnsw
    links = faiss.rev_swig_ptr(inner.neighbors.data(), inner.neighbors.size())
    hidden = []
    for row in rows.tolist():
        place = slice(inner.offsets.at(row), inner.offsets.at(row + 1))
        hidden.append((place, links[place].copy()))
        links[place] = _NO_LINK
    try:
        yield
    finally:
        for place, kept in hidden:
            links[place] = kept
