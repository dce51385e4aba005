"""The global reduce: however rows are spread over nodes, the answer is that of one node that has them all."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.api.querynode import NodeHits
from elanus.core.reduce import primary_keys
from elanus.proxy.fanout.reduce import merge_hits, merge_rows

K = 4
Row = tuple[int, int, int]
"""Primary key, score (or timestamp), the node that holds it."""
ROWS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9), st.integers(0, 2)), max_size=30)


def hits_of(queries: list[list[Row]], node: int | None, metric: str, text_keys: bool) -> NodeHits:
    """A node's answer: the best rows of each query, one per key."""
    sign = -1 if metric == "IP" else 1
    offsets, ids, scores = [0], [], []
    for rows in queries:
        best: dict[int, int] = {}
        for key, score, owner in rows:
            if node in (None, owner) and (key not in best or sign * score < sign * best[key]):
                best[key] = score
        chosen = sorted(best.items(), key=lambda item: (sign * item[1], item[0]))[:K]
        ids += [f"{key:02d}" if text_keys else key for key, _ in chosen]
        scores += [score for _, score in chosen]
        offsets.append(len(ids))
    keys = pa.array(ids, pa.string() if text_keys else pa.int64())
    return NodeHits(
        metric,
        np.array(offsets),
        primary_keys(keys),
        np.array(scores, dtype=np.float32),
        {"copy": keys.cast(pa.string())},
    )


@pytest.mark.parametrize("metric", ["L2", "IP"])
@pytest.mark.parametrize("text_keys", [False, True])
@given(queries=st.lists(ROWS, min_size=1, max_size=3))
def test_hits_of_many_nodes_are_those_of_one(queries: list[list[Row]], metric: str, text_keys: bool) -> None:
    merged = merge_hits([hits_of(queries, node, metric, text_keys) for node in range(3)], K)
    expected = hits_of(queries, None, metric, text_keys)
    assert merged.offsets.tolist() == expected.offsets.tolist()
    assert merged.ids.tolist() == expected.ids.tolist()
    assert merged.scores.tolist() == expected.scores.tolist()
    assert merged.fields["copy"].to_pylist() == expected.fields["copy"].to_pylist()


def rows_of(rows: list[Row], node: int | None, limit: int | None) -> dict[str, pa.Array]:
    newest: dict[int, int] = {}
    for key, ts, owner in rows:
        if node in (None, owner):
            newest[key] = max(ts, newest.get(key, -1))
    chosen = sorted(newest.items())[:limit]
    return {
        "id": pa.array([key for key, _ in chosen], pa.int64()),
        "said_at": pa.array([ts for _, ts in chosen], pa.int64()),
        "Timestamp": pa.array([ts for _, ts in chosen], pa.int64()),
    }


@given(rows=ROWS, limit=st.one_of(st.none(), st.integers(0, 8)))
def test_rows_of_many_nodes_are_those_of_one(rows: list[Row], limit: int | None) -> None:
    merged = merge_rows([rows_of(rows, node, limit) for node in range(3)], "id", limit)
    expected = rows_of(rows, None, limit)
    assert list(merged) == ["id", "said_at"]
    assert merged["id"].to_pylist() == expected["id"].to_pylist()
    assert merged["said_at"].to_pylist() == expected["said_at"].to_pylist()
