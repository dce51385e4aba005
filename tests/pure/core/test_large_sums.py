"""Sums and averages of integers beyond 64 bits, and of numbers that a float cannot hold exactly."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from elanus.core.aggregation import Aggregate, Aggregation, combined, finished, partial
from elanus.core.errors import InvalidParameter

MOMENT = 1_760_000_000_000_000
AVERAGE = Aggregate("avg", "n", "avg(n)")
SUM = Aggregate("sum", "n", "sum( n )")


def column(*aggregates: Aggregate, nodes: list[list[int | None]], kind: pa.DataType) -> dict[str, list[Any]]:
    wanted = Aggregation((), aggregates)
    parts = [partial({"n": pa.array(values, kind)}, len(values), wanted) for values in nodes]
    return {name: found.to_pylist() for name, found in finished(combined(parts, wanted), wanted).items()}


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([[MOMENT] * 6], MOMENT),
        ([[2**62] * 4], 2**62),
        ([[2**62] * 4, [2**62, None], [], [None]], 2**62),
        ([[-(2**63)] * 3], -(2**63)),
        ([[2**53 + 1]], 2**53),
        ([[None], []], None),
        ([[]], None),
    ],
)
def test_an_average_is_right_where_the_sum_is_large(nodes: Any, expected: float | None) -> None:
    assert column(AVERAGE, nodes=nodes, kind=pa.int64()) == {"avg(n)": [expected]}


def test_each_group_has_its_own_average() -> None:
    keys = pa.array(["a", "a", "b", None], pa.string())
    numbers = pa.array([2**62, 2**62, None, MOMENT], pa.int64())
    wanted = Aggregation(("key",), (AVERAGE,))
    found = finished(combined([partial({"key": keys, "n": numbers}, 4, wanted)] * 2, wanted), wanted)
    averages = dict(zip(found["key"].to_pylist(), found["avg(n)"].to_pylist(), strict=True))
    assert averages == {"a": 2**62, "b": None, None: MOMENT}


@pytest.mark.parametrize("nodes", [[[2**62] * 2], [[2**62], [2**62]], [[2**62] * 4], [[-(2**62)] * 3]])
def test_a_sum_that_does_not_fit_is_refused(nodes: Any) -> None:
    with pytest.raises(InvalidParameter) as refused:
        column(SUM, nodes=nodes, kind=pa.int64())
    assert refused.value.message == "sum( n ): the sum of field n does not fit 64 bits: use avg(n)"


@pytest.mark.parametrize(
    "nodes", [[[2**62, 2**62 - 1]], [[-(2**62)] * 2], [[2**62] * 3, [-(2**62)] * 2], [[None]], [[MOMENT] * 6]]
)
def test_a_sum_that_fits_is_exact(nodes: Any) -> None:
    numbers = [n for values in nodes for n in values if n is not None]
    assert column(SUM, nodes=nodes, kind=pa.int64()) == {"sum( n )": [sum(numbers) if numbers else None]}


def test_sums_of_floats_may_be_of_any_size() -> None:
    assert column(SUM, AVERAGE, nodes=[[3e38, 1e38]], kind=pa.float32()) == {
        "sum( n )": [pytest.approx(4e38)],
        "avg(n)": [pytest.approx(2e38)],
    }
