"""Items in batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def batched(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """Yield the items in batches of ``size``, the last one smaller: `itertools.batched` of Python 3.12."""
    left = iter(items)
    while batch := tuple(islice(left, size)):
        yield batch
