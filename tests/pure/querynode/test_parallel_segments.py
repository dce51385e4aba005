"""Searching many segments: side by side where it takes long, and with the same answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from explained_reads import SCHEMA, Asked, block, search_of, segment, snapshot

from elanus.expr import compile_filter
from elanus.index import plan
from elanus.index.parallel import SpareCores, fan_out
from elanus.querynode import ranking
from elanus.querynode.search import search

ROWS = 300
EVERY_ROW = compile_filter("", SCHEMA)


@pytest.fixture
def divisions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many shares each division had."""
    seen: list[int] = []

    def counted(work: Any, shares: Any, threads: int) -> Any:
        seen.append(len(shares))
        return fan_out(work, shares, threads, SpareCores(threads, lambda: 1))

    monkeypatch.setattr(ranking, "fan_out", counted)
    return seen


def _segments(count: int) -> Any:
    return snapshot(*(segment(n, block(ROWS + n, first_key=1000 * n)) for n in range(1, count + 1)))


def test_long_searches_are_divided_by_segments(divisions: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    of, asked = _segments(8), search_of(Asked(k=20, queries=2), EVERY_ROW)
    alone = search(of, asked, 1)
    assert divisions == []
    monkeypatch.setattr(plan, "SHARE_MIN_NS", 1000.0)
    shared = search(of, asked, 3)
    assert divisions == [8]
    np.testing.assert_array_equal(shared.ids, alone.ids)
    np.testing.assert_array_equal(shared.scores, alone.scores)


def test_short_searches_and_single_segments_are_not(divisions: list[int]) -> None:
    search(_segments(8), search_of(Asked(), EVERY_ROW), 4)
    search(_segments(1), search_of(Asked(), EVERY_ROW), 4)
    assert divisions == []
