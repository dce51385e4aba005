"""Items in batches: none is lost, and only the last batch is smaller."""

from __future__ import annotations

import pytest

from elanus.core.batches import batched


@pytest.mark.parametrize(
    ("count", "sizes"), [(0, []), (1, [1]), (3, [3]), (4, [3, 1]), (6, [3, 3]), (7, [3, 3, 1])]
)
def test_all_batches_but_the_last_are_full(count: int, sizes: list[int]) -> None:
    batches = list(batched(range(count), 3))
    assert [len(batch) for batch in batches] == sizes
    assert [item for batch in batches for item in batch] == list(range(count))


def test_items_are_taken_as_batches_are() -> None:
    items = iter(range(100))
    assert next(batched(items, 2)) == (0, 1)
    assert next(items) == 2
