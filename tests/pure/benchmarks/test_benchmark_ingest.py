"""The measure of ingest: how large its cells are, and the page."""

from __future__ import annotations

from itertools import product

import pytest

from benchmarks.ingest import KINDS, QUICK, WHOLE, Cell, Extent, page
from elanus.core.limits import SHARDS_MAX

CELLS = [
    Cell(kind, shards, connections, batch, rows=1000, took_s=0.5, cpu_us=10.0 * shards)
    for kind, shards, connections, batch in product(KINDS, (1, 8), (1, 4), (1, 1000))
]


def test_a_cell_ends_by_its_calls_or_its_rows() -> None:
    extent = Extent((1,), (1, 4), (1, 100), calls_max=40, rows_max=1000)
    assert extent.calls(1, 1) == 40
    assert extent.calls(4, 1) == 10
    assert extent.calls(1, 100) == 10
    assert extent.calls(16, 1000) == 1, "every connection has a call"


@pytest.mark.parametrize("extent", [WHOLE, QUICK])
def test_the_rows_of_a_collection_are_not_slowed(extent: Extent) -> None:
    assert max(extent.shards) <= SHARDS_MAX
    for connections in extent.connections:
        rows = sum(connections * extent.calls(connections, batch) * batch for batch in extent.batches)
        assert rows * 2 * 600 < 10**9  # inserted and upserted, a vector of 512 bytes each


def test_the_page_has_a_table_for_each_kind() -> None:
    text = page(CELLS, {"processor": "of a test"})
    assert "*processor: of a test.*" in text
    for kind in KINDS:
        assert f"\n## {kind}\n" in text
    assert text.count("| shards | rows in a call | 1 connection | 4 connections |\n|---|---|---|---|\n") == 3
    assert text.count("| 8 | 1,000 | 80.0 (2,000) | 80.0 (2,000) |") == 3
