"""Function chains: steps by which the hits of a search get other scores, another order, or become fewer.

A chain is a list of operations over a table of hits. Its columns are ``$score``, ``$id``, fields of the
collection, and what earlier operations have computed:

=========  ======================================================================================
`Map`      computes a column with a function, or ``$score`` itself
`Sort`     puts the hits of each query in the order of a column
`Limit`    keeps some hits of each query
=========  ======================================================================================

A chain runs at one of three stages: on the hits of each segment (L0), on those of each query node (L1), or on
the hits of all nodes in the proxy (L2). Before L2, larger scores are better: distances are negative there.
The functions are those of Milvus 3.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.errors import InvalidParameter
from elanus.core.ordering import OrderBy, order_within
from elanus.core.rankers import Decay

SCORE, ID = "$score", "$id"
COMBINE, DECAY, ROUND = "num_combine", "decay", "round_decimal"
COMBINE_MODES = ("multiply", "sum", "max", "min", "avg", "weighted")
NULL_POLICIES = ("propagate", "as_zero", "skip")
DECIMALS_MAX = 6

Places = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
Values = npt.NDArray[np.float64]
Param: TypeAlias = float | str | tuple[float, ...]


class Call(msgspec.Struct, frozen=True):
    """A function of columns. ``params``: checked, with all defaults.

    ``num_combine``: mode, weights, null_policy; ``decay``: function, origin, scale, offset, decay;
    ``round_decimal``: decimal.
    """

    function: str
    inputs: tuple[str, ...]
    params: dict[str, Param]


class Map(msgspec.Struct, tag=True, frozen=True):
    """``output``: the name of the column that ``call`` computes."""

    output: str
    call: Call


class Sort(msgspec.Struct, tag=True, frozen=True):
    """Hits that are equal in ``column`` are in ascending order of ``tie_break``; "": they keep theirs.

    Nulls are last in either direction.
    """

    column: str
    descending: bool = False
    tie_break: str = ""


class Limit(msgspec.Struct, tag=True, frozen=True):
    """Keeps ``limit`` hits of each query, without the first ``offset`` ones."""

    limit: int
    offset: int = 0


Operation: TypeAlias = Map | Sort | Limit


@dataclass(frozen=True, slots=True)
class Chain:
    """``fields``: the collection's fields that the operations read."""

    operations: tuple[Operation, ...]
    fields: tuple[str, ...]

    @property
    def paginates(self) -> bool:
        """Whether the chain says itself which hits are returned."""
        return any(isinstance(operation, Limit) for operation in self.operations)


@dataclass(frozen=True, slots=True)
class Chains:
    """The chains of one search, by their stages."""

    segment: Chain | None = None
    node: Chain | None = None
    proxy: Chain | None = None


@dataclass(frozen=True, slots=True)
class Chained:
    """The hits that a chain leaves. ``places``: among those it got, query by query as ``offsets`` say.

    ``scores``: those of these hits. shape (n,)
    """

    offsets: Places
    places: Places
    scores: Scores


def run_chain(chain: Chain, offsets: Places, scores: Scores, column_of: Callable[[str], pa.Array]) -> Chained:
    """Run a chain over hits, of which those of query i are at ``offsets[i]:offsets[i + 1]``.

    ``column_of``: a field or ``$id``, one value for each hit. A hit whose score becomes null gets 0.
    Raises `InvalidParameter` for a column that an operation cannot take.
    """
    columns: dict[str, pa.Array] = {SCORE: pa.array(scores, pa.float32())}

    def read(name: str) -> pa.Array:
        if name not in columns:
            columns[name] = column_of(name)
        return columns[name]

    places = np.arange(len(scores), dtype=np.int64)
    for operation in chain.operations:
        match operation:
            case Map(output, call):
                columns[output] = computed(call, [read(name) for name in call.inputs])
            case Sort():
                places = places[_order(operation, offsets, places, read)]
            case Limit(limit, offset):
                offsets, kept = _window(offsets, limit, offset)
                places = places[kept]
    found = columns[SCORE].fill_null(0.0).to_numpy(zero_copy_only=False)
    return Chained(offsets, places, found[places].astype(np.float32))


def computed(call: Call, inputs: Sequence[pa.Array]) -> pa.Array:
    """Return the column that a function computes: float32, as long as its inputs.

    A result that no float32 holds is infinite. Raises `InvalidParameter` for an input of a type that it does
    not take.
    """
    for number, column in enumerate(inputs):
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            raise InvalidParameter(
                f"{call.function}: column {number}: unsupported input column type {column.type}, "
                f"expected numeric type: {call.inputs[number]}"
            )
    with np.errstate(over="ignore", invalid="ignore"):  # else NumPy warns of it
        return _combined(call, inputs) if call.function == COMBINE else _of_one(call, inputs[0])


def _of_one(call: Call, column: pa.Array) -> pa.Array:
    values, valid = _values(column)
    if call.function == DECAY:
        numbers = _factors(call, values)
    else:
        scale = 10.0 ** _number(call, "decimal")
        numbers = np.floor(values * scale + 0.5) / scale
    return pa.array(numbers.astype(np.float32), pa.float32(), mask=~valid)


def _factors(call: Call, values: Values) -> npt.NDArray[np.floating]:
    curve = str(call.params["function"])
    origin, scale, offset, decay = (_number(call, name) for name in ("origin", "scale", "offset", "decay"))
    return Decay(call.inputs[0], curve, origin, scale, offset, decay).factors(values)


def _combined(call: Call, inputs: Sequence[pa.Array]) -> pa.Array:
    pairs = [_values(column) for column in inputs]
    values = np.stack([values for values, _ in pairs])
    valid = np.stack([present for _, present in pairs])
    mode, policy = call.params["mode"], call.params["null_policy"]
    counted = np.ones_like(valid) if policy == "as_zero" else valid
    if mode == "weighted":
        weights = call.params["weights"]
        assert isinstance(weights, tuple)
        values = values * np.array(weights)[:, None]
    # a value that does not count is replaced by one that changes nothing
    neutral = {"multiply": 1.0, "max": -np.inf, "min": np.inf}.get(str(mode), 0.0)
    values = np.where(counted, np.where(valid, values, 0.0), neutral)
    counts = counted.sum(axis=0)
    match mode:
        case "multiply":
            result = values.prod(axis=0)
        case "max":
            result = values.max(axis=0)
        case "min":
            result = values.min(axis=0)
        case "avg":
            result = values.sum(axis=0) / np.maximum(counts, 1)
        case _:
            result = values.sum(axis=0)
    present = counts > 0 if policy == "skip" else counted.all(axis=0)
    return pa.array(result.astype(np.float32), pa.float32(), mask=~present)


def _order(sort: Sort, offsets: Places, places: Places, read: Callable[[str], pa.Array]) -> Places:
    names = [name for name in (sort.column, sort.tie_break) if name]
    taken = pa.array(places)
    columns = {name: read(name).take(taken) for name in names}
    for name, column in columns.items():
        if pa.types.is_boolean(column.type) or pa.types.is_nested(column.type):
            raise InvalidParameter(f"sort_op: column {name} has non-comparable type {column.type}")
    order = [OrderBy(sort.column, sort.descending)]
    if sort.tie_break:
        order.append(OrderBy(sort.tie_break))
    return order_within(offsets, columns, order)


def _window(offsets: Places, limit: int, offset: int) -> tuple[Places, Places]:
    """Return the offsets of the hits that a limit keeps, and their places."""
    counts = np.diff(offsets)
    rank = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    kept = np.flatnonzero((rank >= offset) & (rank < offset + limit))
    return np.concatenate(([0], np.cumsum(np.clip(counts - offset, 0, limit)))).astype(np.int64), kept


def _values(column: pa.Array) -> tuple[Values, npt.NDArray[np.bool_]]:
    """Return the numbers (any for null), and which are not null."""
    valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
    numbers = pc.cast(column, pa.float64(), safe=False).fill_null(0.0).to_numpy(zero_copy_only=False)
    return numbers, valid


def _number(call: Call, name: str) -> float:
    value = call.params[name]
    assert isinstance(value, int | float)
    return float(value)
