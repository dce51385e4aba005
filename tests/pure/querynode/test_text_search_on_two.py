"""Full-text search over two nodes: the scores are those of one node, wherever the segments are."""

from __future__ import annotations

import asyncio
from pathlib import Path

from channel_world import A, B, Cluster
from node_rows import VECTOR
from node_world import COLLECTION
from test_text_search import K1, QUERY, SCHEMA, TextWorld
from test_text_search import B as SLOPE

from elanus.api.querynode import NodeStatistics
from elanus.core.timestamps import Timestamp
from elanus.index import query_of, weighted
from elanus.proxy.fanout.deadline import Patience
from elanus.text import analyzer_from, query_terms


class TextCluster(Cluster):
    batch = TextWorld.batch

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.schema = SCHEMA
        self.index_params = {"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "BM25"}

    async def scores(self) -> dict[int, float]:
        """The scores by key, as the proxy finds them over all nodes."""
        queries = query_terms(analyzer_from(""), [QUERY])
        terms = query_of(queries)
        asked = NodeStatistics(COLLECTION, VECTOR, terms, Timestamp(self.tick_ts))
        statistics = await asyncio.to_thread(self.proxy.statistics, asked, Patience(5.0))
        params = {"bm25_k1": K1, "bm25_b": SLOPE, "bm25_avgdl": statistics.average}
        weights = weighted(queries, terms, statistics, K1)
        search = self.node_search(0, 1000, queries=weights, params=params)
        found = await asyncio.to_thread(self.proxy.search, search, Patience(5.0))
        return dict(zip(found.ids.tolist(), found.scores.tolist(), strict=True))


def test_scores_do_not_depend_on_the_nodes(tmp_path: Path) -> None:
    async def play() -> None:
        cluster = TextCluster(tmp_path)
        await cluster.begin()
        segments = []
        for first in (0, 40):
            await cluster.insert([(first + n, first + n) for n in range(40)])
            await cluster.tick()
            cluster.seal()
            segments += cluster.flush()
        await cluster.insert([(80 + n, 80 + n) for n in range(40)])
        await cluster.tick()
        growing = await cluster.scores()
        assert growing.keys() == {key for key, score in TextWorld.expected(cluster).items() if score}
        cluster.build_index(segments[0])
        for segment_id, node_id in zip(segments, (A, B), strict=True):
            await cluster.load(node_id, [segment_id])
        await cluster.place(dict(zip(segments, (A, B), strict=True)))
        assert await cluster.scores() == growing
        await cluster.load(B, segments[:1])
        await cluster.place({segments[0]: B})
        assert await cluster.scores() == growing
        await cluster.end()

    asyncio.run(play())
