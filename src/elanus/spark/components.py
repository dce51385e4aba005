"""Connected components of pairs of keys, in numpy.

A component is given by pairs of each key with the smallest one: at most one pair a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.reduce import comparable_keys, primary_keys

MEMBER, KEEP = "key", "keep"

Numbers = npt.NDArray[np.int64]


def pairs_schema(key: pa.DataType) -> pa.Schema:
    """A pair is a key and a smaller key of the same component."""
    return pa.schema([(MEMBER, key), (KEEP, key)])


def components(first: Numbers, second: Numbers, nodes: int) -> Numbers:
    """Return the smallest node of the component of each node. Pairs (m,), (m,) of 0 … nodes - 1 → (nodes,).

    Each round hooks the roots of joined trees to the smaller one and flattens the trees, so the number of
    rounds grows with the logarithm of the nodes.
    """
    root = np.arange(nodes)
    while True:
        one, other = root[first], root[second]
        if (one == other).all():
            return root
        np.minimum.at(root, np.maximum(one, other), np.minimum(one, other))
        while not np.array_equal(root, above := root[root]):
            root = above


def forest(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return one pair for each key that is not the smallest of its component: with that smallest one.

    ``batches``: of `pairs_schema`. At most one pair less than there are keys, however many pairs come in, and
    with the same components.
    """
    parts = [batch for batch in batches if batch.num_rows]
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=schema)
    keys = pa.concat_arrays([part.column(name) for name in (MEMBER, KEEP) for part in parts])
    _, first_place, number = np.unique(
        comparable_keys(primary_keys(keys)), return_index=True, return_inverse=True
    )
    half = len(number) // 2
    root = components(number[:half], number[half:], len(first_place))
    members = np.flatnonzero(root != np.arange(len(root)))
    columns = [keys.take(pa.array(first_place[at])) for at in (members, root[members])]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def reduced_pairs(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """`forest`, as a task."""
    yield forest(batches, schema)
