"""Full-text search on a node: a row's score is a function of the rows that the read sees, and of nothing
else.

The expected scores are computed from the model of visible rows, in plain Python. The node's are compared with
them after every step, and bit for bit with those that it gave for the same moment before.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from node_rows import VECTOR, Row
from node_world import COLLECTION, World

from elanus.api.querynode import NodeSearch, NodeStatistics
from elanus.core.errors import DeadlineExceeded
from elanus.core.functions import Function
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.index import query_of, weighted
from elanus.querynode import growing, query_slices
from elanus.rpc.serving.waiting import serves
from elanus.text import analyzer_from, query_terms
from elanus.text.analyzer import Analyzer

WORDS = ("apple", "pear", "plum", "fig", "lime")
QUERY = "apple pear"
K1, B = 1.2, 0.75
SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "value", DataType.INT64),
        FieldSchema(FieldID(102), "tag", DataType.VARCHAR, max_length=64, params={"enable_analyzer": "true"}),
        FieldSchema(VECTOR, "vector", DataType.SPARSE_FLOAT_VECTOR, is_function_output=True),
    ),
    functions=(Function("bm25", "BM25", ("tag",), ("vector",)),),
)


def text_of(value: int) -> str:
    return " ".join(word for n, word in enumerate(WORDS) for _ in range(value // 3**n % 3))


class TextWorld(World):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, index={"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "BM25"})
        self.schema = SCHEMA

    def batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        return pa.record_batch(
            [
                pa.array([row.key for row in rows], pa.int64()),
                pa.array([row.value for row in rows], pa.int64()),
                pa.array([text_of(row.value) for row in rows], pa.string()),
                pa.array([b""] * len(rows), pa.binary()),
            ],
            schema=SCHEMA.arrow_schema,
        )

    def request(
        self, ts: int = 0, text: str = "", asked: Sequence[str] = (QUERY,), timeout_s: float | None = None
    ) -> NodeSearch:
        """As the proxy asks: the statistics first, then the ranking."""
        queries = query_terms(analyzer_from(""), list(asked))
        terms = query_of(queries)
        moment = Timestamp(ts or self.tick_ts)
        statistics = self.node.statistics(NodeStatistics(COLLECTION, VECTOR, terms, moment))
        params = {"bm25_k1": K1, "bm25_b": B, "bm25_avgdl": statistics.average}
        texts = weighted(queries, terms, statistics, K1)
        return self.node_search(0, 1000, text, moment, queries=texts, params=params, timeout_s=timeout_s)

    def scores(self, ts: int = 0, text: str = "") -> dict[int, float]:
        """The scores by key."""
        found = self.node.search(self.request(ts, text))
        return dict(zip(found.ids.tolist(), found.scores.tolist(), strict=True))

    def expected(self, ts: int = 0) -> dict[int, float]:
        rows = {row.key: text_of(row.value).split() for row in self.model.visible(ts or self.tick_ts)}
        total = sum(map(len, rows.values()))
        scores: dict[int, float] = {}
        for term in QUERY.split():
            having = sum(term in words for words in rows.values())
            rarity = math.log1p((len(rows) - having + 0.5) / (having + 0.5))
            for key, words in rows.items():
                if tf := words.count(term):
                    norm = tf + K1 * (1 - B + B * len(words) * len(rows) / total)
                    scores[int(key)] = scores.get(int(key), 0.0) + rarity * tf * (K1 + 1) / norm
        return scores

    def check(self, known: dict[int, dict[int, float]]) -> None:
        """Compare with the model now, and with what was answered for earlier moments."""
        found, wanted = self.scores(), self.expected()
        assert found.keys() == wanted.keys()
        assert np.allclose([found[key] for key in wanted], list(wanted.values()), rtol=1e-5)
        for moment, scores in known.items():
            assert self.scores(moment) == scores, f"the scores of moment {moment} changed"
        known[self.tick_ts] = found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_scores_depend_on_the_visible_rows_alone(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)

    async def play() -> None:
        world = TextWorld(tmp_path)
        await world.start()
        known: dict[int, dict[int, float]] = {}
        keys = 0
        for step in range(20):
            match chance.choice(("insert", "insert", "delete", "flush", "index", "compact", "restart")):
                case "insert":
                    count = chance.randint(1, 9)
                    await world.insert([(keys + n, chance.randrange(3**5)) for n in range(count)])
                    keys += count
                case "delete" if keys:
                    await world.delete(chance.sample(range(keys), min(keys, 3)))
                case "flush" | "index" as what:
                    world.seal()
                    done = world.flush()
                    if what == "index":
                        for segment_id in done:
                            world.build_index(segment_id)
                    await world.hand_off(done)
                case "compact":
                    sealed = world.finished()
                    if len(sealed) > 1:
                        world.seal()
                        await world.hand_off(world.flush())
                        await world.stamp_and_tick()
                        known = {world.tick_ts: world.scores()}  # it removes rows that earlier moments see
                        await world.hand_off([world.compact(sealed)], sealed)
                case "restart" if step % 2:
                    await world.restart()
            await world.stamp_and_tick()
            world.check(known)
        world.node.invariants()
        await world.node.stop()

    asyncio.run(play())


def test_rows_are_analyzed_by_the_first_search_and_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    analyzed: list[int] = []
    real = Analyzer.tokens_of
    monkeypatch.setattr(
        Analyzer, "tokens_of", lambda self, texts: analyzed.append(len(texts)) or real(self, texts)
    )
    monkeypatch.setattr(growing, "MERGED_BYTES_MAX", 1 << 30)

    async def play() -> None:
        world = TextWorld(tmp_path)
        await world.start()
        await world.insert([(key, key) for key in range(100)])
        await world.tick()
        assert analyzed == []
        (block,) = world.snapshot.segments[0].blocks
        before = block.cached_bytes
        world.scores()
        world.scores()
        assert block.cached_bytes > before
        assert sorted(analyzed) == [1, 1, 100]  # and the two queries
        await world.insert([(key, key) for key in range(100, 190)])
        await world.tick()
        analyzed.clear()
        world.scores()
        assert sorted(analyzed) == [1, 90]  # the merged block knows the vectors of its first rows
        await world.node.stop()

    asyncio.run(play())


def test_a_filter_changes_no_score(tmp_path: Path) -> None:
    async def play() -> None:
        world = TextWorld(tmp_path)
        await world.start()
        await world.insert([(key, key) for key in range(60)])
        await world.tick()
        every = world.scores()
        some = world.scores(text="id % 3 == 0")
        assert some == {key: score for key, score in every.items() if key % 3 == 0}
        await world.node.stop()

    asyncio.run(play())


def test_a_search_of_few_texts_ends_when_its_client_does_not_wait_any_longer(tmp_path: Path) -> None:
    async def play() -> None:
        world = TextWorld(tmp_path)
        await world.start()
        await world.insert([(key, key) for key in range(60)])
        await world.tick()
        looks = iter([0.0, 1.0, 2.0, 11.0])
        with (
            patch.object(query_slices, "time", SimpleNamespace(monotonic=lambda: next(looks))),
            pytest.raises(DeadlineExceeded, match="waits for 10 s, in which not all segments were searched"),
        ):
            world.node.search(world.request(asked=("apple", "pear", "plum"), timeout_s=10.0))
        assert next(looks, None) is None, "it looked before each text"
        await world.node.stop()

    asyncio.run(play())


def test_a_search_of_texts_ends_when_its_client_is_gone(tmp_path: Path) -> None:
    async def play() -> None:
        world = TextWorld(tmp_path)
        await world.start()
        await world.insert([(key, key) for key in range(60)])
        await world.tick()
        for texts, answers in (
            (("apple", "pear", "plum"), [False, True]),
            (("apple",) * 40, [False, True]),
        ):
            looks = iter(answers)
            serves(partial(next, looks))
            try:
                with pytest.raises(DeadlineExceeded, match="client has given up"):
                    world.node.search(world.request(asked=texts))
            finally:
                serves(None)
            assert next(looks, None) is None, "it looks between texts, and between shares of many"
        await world.node.stop()

    asyncio.run(play())


def test_texts_that_are_searched_one_after_the_other_have_the_answers_of_the_whole(tmp_path: Path) -> None:
    async def play() -> None:
        world = TextWorld(tmp_path)
        await world.start()
        await world.insert([(key, key) for key in range(60)])
        await world.tick()
        texts = ("apple", "pear plum", "fig")
        whole = world.node.search(world.request(asked=texts))
        singly = world.node.search(world.request(asked=texts, timeout_s=1e6))
        assert singly.offsets.tolist() == whole.offsets.tolist()
        assert singly.ids.tolist() == whole.ids.tolist()
        assert singly.scores.tolist() == whole.scores.tolist()
        await world.node.stop()

    asyncio.run(play())
