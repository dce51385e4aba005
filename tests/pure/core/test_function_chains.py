"""Function chains against the same steps in Python's own terms."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.function_chains import Call, Chain, Limit, Map, Sort, computed, run_chain

OFFSETS = np.array([0, 3, 5], dtype=np.int64)
SCORES = np.array([0.9, 0.8, 0.7, 0.6, 0.5], dtype=np.float32)
FIELDS = {
    "$id": pa.array([5, 4, 3, 2, 1], pa.int64()),
    "price": pa.array([1, None, 3, 4, 5], pa.int32()),
    "tag": pa.array(["b", "a", None, "d", "c"]),
    "sold": pa.array([True] * 5),
}


def run(*operations: Map | Sort | Limit) -> tuple[list[int], list[int], list[float]]:
    left = run_chain(Chain(operations, ()), OFFSETS, SCORES, FIELDS.__getitem__)
    return left.offsets.tolist(), left.places.tolist(), left.scores.tolist()


def combine(mode: str, *inputs: str, weights: tuple[float, ...] = (), policy: str = "propagate") -> Call:
    return Call("num_combine", inputs, {"mode": mode, "weights": weights, "null_policy": policy})


def test_an_empty_chain_of_steps_changes_nothing() -> None:
    assert run() == ([0, 3, 5], [0, 1, 2, 3, 4], SCORES.tolist())


def test_scores_are_mapped_and_hits_keep_their_order() -> None:
    _, places, scores = run(Map("$score", combine("sum", "$score", "price")))
    assert places == [0, 1, 2, 3, 4]  # a chain that does not sort does not reorder
    assert scores == pytest.approx([1.9, 0.0, 3.7, 4.6, 5.5])  # no number: 0


@pytest.mark.parametrize(
    ("mode", "policy", "expected"),
    [
        ("multiply", "propagate", [4.0, None]),
        ("sum", "propagate", [5.0, None]),
        ("max", "propagate", [4.0, None]),
        ("min", "propagate", [1.0, None]),
        ("avg", "propagate", [2.5, None]),
        ("weighted", "propagate", [13.0, None]),
        ("multiply", "as_zero", [4.0, 0.0]),
        ("min", "as_zero", [1.0, -2.0]),
        ("avg", "as_zero", [2.5, -1.0]),
        ("multiply", "skip", [4.0, -2.0]),
        ("max", "skip", [4.0, -2.0]),
        ("avg", "skip", [2.5, -2.0]),
        ("weighted", "skip", [13.0, -2.0]),
    ],
)
def test_columns_are_combined(mode: str, policy: str, expected: list[float | None]) -> None:
    inputs = [pa.array([1.0, -2.0]), pa.array([4, None], pa.int64())]
    call = combine(mode, "a", "b", weights=(1.0, 3.0), policy=policy)
    assert computed(call, inputs).to_pylist() == expected


def test_no_value_at_all_is_null() -> None:
    inputs = [pa.array([None], pa.int8()), pa.array([None], pa.float32())]
    for policy, expected in (("skip", None), ("propagate", None), ("as_zero", 0.0)):
        assert computed(combine("sum", "a", "b", policy=policy), inputs).to_pylist() == [expected]


def test_a_decay_is_the_factor_itself() -> None:
    params = {"function": "exp", "origin": 10.0, "scale": 2.0, "offset": 1.0, "decay": 0.5}
    values = computed(Call("decay", ("n",), dict(params)), [pa.array([10, 13, None, 7.5])])
    assert values.to_pylist() == pytest.approx([1.0, 0.5, None, math.exp(math.log(0.5) / 2 * 1.5)])


def test_halves_are_rounded_up() -> None:
    call = Call("round_decimal", ("n",), {"decimal": 1.0})
    assert computed(call, [pa.array([0.25, -0.25, 0.24], pa.float32())]).to_pylist() == pytest.approx(
        [0.3, -0.2, 0.2]
    )


def test_hits_are_sorted_within_their_query() -> None:
    assert run(Sort("price", descending=True))[1] == [2, 0, 1, 4, 3]  # nulls are last
    assert run(Sort("price"))[1] == [0, 2, 1, 3, 4]
    assert run(Sort("tag"))[1] == [1, 0, 2, 4, 3]
    flat = Map("flat", combine("multiply", "$score", "$score"))
    level = Map("level", Call("round_decimal", ("flat",), {"decimal": 0.0}))
    assert run(flat, level, Sort("level", descending=True, tie_break="$id"))[1] == [1, 0, 2, 4, 3]


def test_limits_apply_to_each_query_and_to_the_order_so_far() -> None:
    offsets, places, scores = run(Sort("$score"), Limit(2, offset=1))
    assert (offsets, places) == ([0, 2, 3], [1, 0, 3])
    assert scores == pytest.approx([0.8, 0.9, 0.6])
    assert run(Limit(1), Limit(5, offset=1))[0] == [0, 0, 0]


def test_columns_of_other_types_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="num_combine: column 1: unsupported input column type string"):
        run(Map("x", combine("sum", "$score", "tag")))
    with pytest.raises(InvalidParameter, match="sort_op: column sold has non-comparable type bool"):
        run(Sort("sold"))


@pytest.mark.parametrize("mode", ["multiply", "sum", "avg", "weighted"])
def test_a_score_that_no_float_holds_is_infinite_without_a_warning(mode: str) -> None:
    large = pa.array([1e30, 3e38, 1e308], pa.float64())
    call = combine(mode, "a", "b", weights=(1e10, 1e10) if mode == "weighted" else ())
    found = computed(call, [large, large]).to_pylist()
    assert found[2] == math.inf
    assert computed(Call("round_decimal", ("a",), {"decimal": 6.0}), [large]).to_pylist()[2] == math.inf
