"""Ordered queries over two nodes that hold different rows of a primary key."""

from __future__ import annotations

import asyncio

from channel_world import B, Cluster, finished, scenario

from elanus.core.ordering import OrderBy
from elanus.proxy.fanout.deadline import Patience


@scenario
async def test_an_older_row_on_another_node_is_not_among_the_first(cluster: Cluster) -> None:
    """Key 1 was inserted twice: its older row would be the first, its newer one is behind the limit."""
    segment_id = await finished(cluster, 1, 2)
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    await cluster.insert([(3, 3), (4, 4), (1, 9)])
    await cluster.tick()
    request = cluster.node_query(order=(OrderBy("value"),), limit=2)
    rows = await asyncio.to_thread(cluster.proxy.query, request, Patience(5.0))
    assert rows["id"].to_pylist() == [2, 3]
    assert set(rows) == {"id", "value", "vector"}
