"""Micro-benchmarks of two inner loops on which the server's design rests.

*Vectors off the wire.* An insert of 1,000 rows of 768 floats arrives as one packed protobuf field, and
`numpy.array` turns it into a matrix. With protobuf 7 that is a copy; with 5 and 6 every float becomes a
Python object, some two hundred times slower. Hence the project requires protobuf 7, and this shows whether
it holds.

*Filters.* A filter is evaluated on a segment's columns once and cached as a bitmap. One comparison and one
combined expression over a million rows show what a cache miss costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pymilvus.grpc_gen import schema_pb2

from benchmarks.metrics import median

REPEATS = 7
WIRE_ROWS, WIRE_DIMENSION = 1000, 768
FILTER_ROWS = 1_000_000


@dataclass(frozen=True)
class Kernel:
    """One loop to time.

    Attributes:
        name: shown.
        limit_ms: above this, something on which the design rests no longer holds.
        action: the loop.
    """

    name: str
    limit_ms: float
    action: Callable[[], object]


def kernels() -> Iterator[Kernel]:
    """Build the inputs, then yield each loop."""
    field = schema_pb2.FloatArray(data=np.random.default_rng(0).random(WIRE_ROWS * WIRE_DIMENSION))
    yield Kernel(
        f"protobuf floats → numpy, {WIRE_ROWS} × {WIRE_DIMENSION}",
        5.0,
        lambda: np.array(field.data, dtype=np.float32),
    )
    columns = _columns()
    yield Kernel(f"filter price < 10, {FILTER_ROWS:,} rows", 20.0, lambda: pc.less(columns["price"], 10))
    yield Kernel(
        f"filter price > 10 and color in […] and name like 'a%', {FILTER_ROWS:,} rows",
        100.0,
        lambda: _combined(columns),
    )


def median_ms(kernel: Kernel) -> float:
    """Median time of one run of the loop, in milliseconds, after one run unmeasured."""
    kernel.action()
    return median([_once_ms(kernel.action) for _ in range(REPEATS)])


def report() -> Iterator[str]:
    """One line per kernel: time, and whether it is within its limit."""
    for kernel in kernels():
        spent = median_ms(kernel)
        verdict = "ok" if spent <= kernel.limit_ms else f"OVER the limit of {kernel.limit_ms:g} ms"
        yield f"{spent:9.3f} ms  {kernel.name}  [{verdict}]"


def _once_ms(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return (time.perf_counter() - begun) * 1e3


def _columns() -> pa.Table:
    random = np.random.default_rng(1)
    names = np.array(["apple", "pear", "avocado", "plum", "cherry", "almond"])
    colors = np.array(["red", "green", "blue", "black", "white"])
    return pa.table(
        {
            "price": random.random(FILTER_ROWS) * 100,
            "color": pa.array(colors[random.integers(0, len(colors), FILTER_ROWS)]).dictionary_encode(),
            "name": pa.array(names[random.integers(0, len(names), FILTER_ROWS)]).dictionary_encode(),
        }
    )


def _combined(columns: pa.Table) -> pa.ChunkedArray:
    wanted = pa.array(["red", "blue"])
    color = _over_dictionary(columns["color"], lambda values: pc.is_in(values, wanted))
    name = _over_dictionary(columns["name"], lambda values: pc.starts_with(values, "a"))
    return pc.and_(pc.and_(pc.greater(columns["price"], 10), color), name)


def _over_dictionary(column: pa.ChunkedArray, test: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Evaluate on the distinct values, then spread the answers over the rows."""
    encoded = column.combine_chunks()
    return pc.take(test(encoded.dictionary), encoded.indices)
