"""The first rows in an order over several nodes are those of one node that has all rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from elanus.api.querynode import NodeQuery
from elanus.core.ids import CollectionID
from elanus.core.ordering import OrderBy
from elanus.core.timestamps import Timestamp
from elanus.expr import BoundFilter
from elanus.proxy.fanout.first_rows import first_rows

Row = tuple[int, int, int]
"""Primary key, value, and the node that holds it; a later row in the list is newer."""
ROWS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9), st.integers(0, 2)), max_size=25)


class Nodes:
    """Answers as the query nodes of a replica do."""

    def __init__(self, rows: Sequence[Row], nodes: int) -> None:
        self.rows = rows
        self.nodes = nodes
        self.asked: list[NodeQuery] = []

    def __call__(self, request: NodeQuery) -> list[dict[str, pa.Array]]:
        self.asked.append(request)
        return [self._answer(request, node) for node in range(self.nodes)]

    def _answer(self, request: NodeQuery, node: int) -> dict[str, pa.Array]:
        keys = None if request.primary_keys is None else set(request.primary_keys.to_pylist())
        newest: dict[int, tuple[int, int]] = {}
        for ts, (key, value, owner) in enumerate(self.rows):
            if owner % self.nodes == node and (keys is None or key in keys):
                newest[key] = (value, ts)
        found = [(key, value, ts) for key, (value, ts) in sorted(newest.items())]
        if request.order:
            found.sort(key=lambda row: row[1])
        found = found[: request.limit]
        columns: dict[str, Any] = {
            "id": [key for key, _, _ in found],
            "value": [value for _, value, _ in found],
            "Timestamp": [ts for _, _, ts in found],
        }
        return {name: pa.array(columns[name], pa.int64()) for name in ("id", *request.output_fields)}


def query(limit: int) -> NodeQuery:
    return NodeQuery(
        CollectionID(1),
        (),
        cast(BoundFilter, None),
        None,
        ("value", "Timestamp"),
        limit,
        Timestamp(100),
        order=(OrderBy("value"),),
    )


@given(rows=ROWS, limit=st.integers(0, 6))
def test_the_first_rows_of_many_nodes_are_those_of_one(rows: list[Row], limit: int) -> None:
    one, many = (first_rows(Nodes(rows, nodes), query(limit)) for nodes in (1, 3))
    assert list(many) == ["id", "value"]
    assert {name: column.to_pylist() for name, column in many.items()} == {
        name: column.to_pylist() for name, column in one.items()
    }


def test_an_older_row_does_not_stand_in_for_a_newer_one_that_is_beyond_the_limit() -> None:
    nodes = Nodes([(1, 0, 0), (2, 5, 0), (3, 6, 1), (1, 9, 1)], 2)
    assert first_rows(nodes, query(1))["id"].to_pylist() == [2]


def test_answers_that_are_not_cut_are_merged_without_another_read() -> None:
    nodes = Nodes([(1, 0, 0), (2, 5, 1)], 2)
    assert first_rows(nodes, query(5))["id"].to_pylist() == [1, 2]
    assert len(nodes.asked) == 1


def test_keys_that_exist_once_are_looked_up_once() -> None:
    nodes = Nodes([(key, key, key % 2) for key in range(20)], 2)
    assert first_rows(nodes, query(5))["id"].to_pylist() == list(range(5))
    assert len(nodes.asked) == 2
