"""The evaluation of a filter ends soon after its client has left."""

from __future__ import annotations

import pyarrow as pa
import pytest
from filter_schemas import PLAIN

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


class Client:
    """Leaves when it was looked for so many times."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.seen: list[str] = []

    def check(self, progress: str) -> None:
        self.seen.append(progress)
        if len(self.seen) > self.looks:
            raise DeadlineExceeded(progress)


@pytest.mark.parametrize("text", FILTERS)
def test_it_ends_between_two_conditions(text: str) -> None:
    client = Client(5)
    with pytest.raises(DeadlineExceeded, match="not all"):
        compile_filter(text, PLAIN).evaluate(COLUMNS, 3, go_on=client.check)
    assert len(client.seen) == 6


@pytest.mark.parametrize("text", FILTERS)
def test_it_goes_on_as_long_as_the_client_waits(text: str) -> None:
    bound, client = compile_filter(text, PLAIN), Client(1000)
    assert bound.evaluate(COLUMNS, 3, go_on=client.check).tolist() == bound.evaluate(COLUMNS, 3).tolist()
    assert len(client.seen) >= 30
