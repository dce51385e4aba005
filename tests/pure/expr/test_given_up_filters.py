"""The evaluation of a filter ends soon after its client has left."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from filter_schemas import PLAIN

from elanus.core.client_presence import serves
from elanus.core.errors import DeadlineExceeded
from elanus.expr import JsonColumn, compile_filter

COLUMNS = {
    "price": pa.array([1.0, 2.0, 3.0]),
    "meta": JsonColumn(pa.array(['{"a": [1, 2]}', '{"a": [2]}', "{}"])),
}
FILTERS = [
    " or ".join(f"price == {number}" for number in range(3, 40)),
    " and ".join(f"price != {number}" for number in range(3, 40)),
    f"json_contains_all(meta['a'], {list(range(30))})",
]


@pytest.fixture
def leaves_after() -> Iterator[Callable[[int], list[bool]]]:
    """Have the client of this thread leave when it was looked for so many times. Returns what was seen."""

    def leave(looks: int) -> list[bool]:
        seen: list[bool] = []
        numbers = itertools.count()

        def is_gone() -> bool:
            seen.append(next(numbers) >= looks)
            return seen[-1]

        serves(is_gone)
        return seen

    yield leave
    serves(None)


@pytest.mark.parametrize("text", FILTERS)
def test_it_ends_between_two_conditions(text: str, leaves_after: Callable[[int], list[bool]]) -> None:
    bound = compile_filter(text, PLAIN)
    seen = leaves_after(5)
    with pytest.raises(DeadlineExceeded, match="the client has given up, when not all"):
        bound.evaluate(COLUMNS, 3)
    assert seen == [False] * 5 + [True]


@pytest.mark.parametrize("text", FILTERS)
def test_it_goes_on_as_long_as_the_client_waits(text: str, leaves_after: Callable[[int], list[bool]]) -> None:
    bound = compile_filter(text, PLAIN)
    without_client = bound.evaluate(COLUMNS, 3).tolist()
    seen = leaves_after(1000)
    assert bound.evaluate(COLUMNS, 3).tolist() == without_client
    assert len(seen) >= 30
