"""MinHash outputs on a node: computed for growing rows when a read wants them, stored in segments."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from node_rows import VECTOR, Row
from node_world import World

from elanus.core.functions import Function
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.querynode import growing
from elanus.text import query_texts, signatures_of

SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "value", DataType.INT64),
        FieldSchema(FieldID(102), "tag", DataType.VARCHAR, max_length=64),
        FieldSchema(VECTOR, "vector", DataType.BINARY_VECTOR, dim=512, is_function_output=True),
    ),
    functions=(Function("near", "MinHash", ("tag",), ("vector",), params={"shingle_size": "1"}),),
)


def text_of(value: int) -> str:
    return f"row {value} of the table number {value % 7} and of {value % 11}"


class NearWorld(World):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, index={"index_type": "MINHASH_LSH", "metric_type": "MHJACCARD"})
        self.schema = SCHEMA

    def batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        return pa.record_batch(
            [
                pa.array([row.key for row in rows], pa.int64()),
                pa.array([row.value for row in rows], pa.int64()),
                pa.array([text_of(row.value) for row in rows], pa.string()),
                pa.array([bytes(64)] * len(rows), pa.binary(64)),
            ],
            schema=SCHEMA.arrow_schema,
        )

    def scores(self, value: int) -> dict[int, float]:
        asked = query_texts(SCHEMA, SCHEMA.field("vector"))
        assert asked is not None
        found = self.node.search(self.node_search(0, 1000, queries=asked.vectors_of([text_of(value)])))
        return dict(zip(found.ids.tolist(), found.scores.tolist(), strict=True))

    def vectors(self) -> dict[int, bytes]:
        found = self.node.query(self.node_query(output_fields=("vector",)))
        return dict(zip(found["id"].to_pylist(), found["vector"].to_pylist(), strict=True))


def test_scores_and_vectors_stay_when_rows_are_flushed_indexed_and_compacted(tmp_path: Path) -> None:
    async def play() -> None:
        world = NearWorld(tmp_path)
        await world.start()
        await world.insert([(key, key) for key in range(40)])
        await world.tick()
        scores, vectors = world.scores(5), world.vectors()
        assert scores[5] == 1.0
        assert (len(scores), len(vectors)) == (40, 40)
        assert len(set(vectors.values())) > 30  # texts with nearly the same words may have one signature
        world.seal()
        await world.hand_off(world.flush())
        await world.insert([(key, key) for key in range(40, 60)])
        await world.tick()
        assert {key: score for key, score in world.scores(5).items() if key < 40} == scores
        later = world.vectors()
        assert {key: vector for key, vector in later.items() if key < 40} == vectors
        scores = world.scores(5)
        world.seal()
        done = world.flush()
        world.build_index(done[0])
        await world.hand_off(done)
        assert world.scores(5) == scores
        inputs = world.finished()
        await world.hand_off([world.compact(inputs)], inputs)
        assert world.scores(5) == scores
        assert world.vectors() == later
        await world.node.stop()

    asyncio.run(play())


def test_rows_are_computed_by_the_first_read_and_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []

    def counted(minhash: object, analyzers: object, texts: Sequence[str], names: object = None) -> object:
        computed.append(len(texts))
        return signatures_of(minhash, analyzers, texts, names)  # type: ignore[arg-type]

    monkeypatch.setattr("elanus.text.signatures.signatures_of", counted)
    monkeypatch.setattr(growing, "MERGED_BYTES_MAX", 1 << 30)

    async def play() -> None:
        world = NearWorld(tmp_path)
        await world.start()
        await world.insert([(key, key) for key in range(100)])
        await world.tick()
        assert computed == []
        (block,) = world.snapshot.segments[0].blocks
        assert block.memory_bytes >= block.batch.nbytes, "the batch holds a place for each signature"
        before = block.cached_bytes
        world.scores(1)
        world.vectors()
        assert computed == [100]
        assert block.cached_bytes == before + 100 * 64
        await world.insert([(key, key) for key in range(100, 190)])
        await world.tick()
        world.vectors()
        world.scores(1)
        assert computed == [100, 90]  # the merged block knows the signatures of its first rows
        await world.node.stop()

    asyncio.run(play())
