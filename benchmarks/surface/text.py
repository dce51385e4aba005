"""BM25 over many documents, and what a hybrid search costs compared with its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pymilvus import (
    AnnSearchRequest,
    CollectionSchema,
    DataType,
    Function,
    FunctionType,
    MilvusClient,
    RRFRanker,
)
from pymilvus.milvus_client.index import IndexParams

from benchmarks.dataset import Dataset, drawn
from benchmarks.surface.figures import Line, line
from benchmarks.surface.server import BATCH_ROWS, in_turn, served

NAME = "documents"
VOCABULARY, DOCUMENT_WORDS, ZIPF = 60_000, 32, 1.05
QUERIES, QUERY_WORDS = 500, 4
#: Words that a query has: as often in documents as words that people search for.
QUERY_RANKS = (40, 20_000)
DIM, TOP_K, EF = 128, 10, 64


def about(rows: int) -> str:
    return (
        f"{rows:,} documents of {DOCUMENT_WORDS} words, drawn from {VOCABULARY:,} by Zipf's law, each with a "
        f"vector of {DIM} dimensions. Queries have {QUERY_WORDS} words; top {TOP_K}. HNSW has ef {EF}."
    )


def measure(rows: int, rounds: int, home: Path | None, say: Callable[[str], None]) -> list[Line]:
    """BM25, dense and hybrid searches in turn, on one server."""
    data = drawn(rows, DIM, QUERIES)
    shares = 1 / np.arange(1, VOCABULARY + 1) ** ZIPF
    shares /= shares.sum()
    with served(home) as server:
        took_s = server.fill(NAME, _schema(), _indexes(server.client), _batches(data, shares), say)
        dense, texts, client = data.test, _queries(shares), server.client

        def by_text(number: int) -> None:
            client.search(NAME, [texts[number % QUERIES]], anns_field="sparse", limit=TOP_K)

        def by_vector(number: int) -> None:
            client.search(
                NAME, [dense[number % QUERIES]], "", TOP_K, search_params=_EFFORT, anns_field="dense"
            )

        def hybrid(number: int) -> None:
            parts = [
                AnnSearchRequest([texts[number % QUERIES]], "sparse", {}, TOP_K),
                AnnSearchRequest([dense[number % QUERIES]], "dense", _EFFORT, TOP_K),
            ]
            client.hybrid_search(NAME, parts, RRFRanker(), TOP_K)

        say("searching")
        text_ms, dense_ms, hybrid_ms = in_turn([by_text, by_vector, hybrid], 400, rounds)
    sums = [h / (t + d) for h, t, d in zip(hybrid_ms, text_ms, dense_ms, strict=True)]
    return [
        *(line(f"{name}, s", [value]) for name, value in took_s.items()),
        line("BM25: p50, ms", text_ms),
        line("BM25: searches per second of one client", [1e3 / ms for ms in text_ms], "≥ 400"),
        line("dense: p50, ms", dense_ms),
        line("hybrid: p50, ms", hybrid_ms),
        line("hybrid ÷ sum of its parts", sums, "≤ 1.3"),
    ]


_EFFORT = {"params": {"ef": EF}}


def _schema() -> CollectionSchema:
    schema = MilvusClient.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("text", DataType.VARCHAR, max_length=2000, enable_analyzer=True)
    schema.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
    schema.add_field("dense", DataType.FLOAT_VECTOR, dim=DIM)
    schema.add_function(Function("bm25", FunctionType.BM25, ["text"], ["sparse"]))
    return schema


def _indexes(client: MilvusClient) -> IndexParams:
    index = client.prepare_index_params()
    index.add_index("sparse", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
    index.add_index("dense", index_type="HNSW", metric_type="L2", params={"M": 16, "efConstruction": 200})
    return index


def _batches(data: Dataset, shares: np.ndarray) -> Iterator[pa.RecordBatch]:
    random, words = np.random.default_rng(3), pa.array([f"word{n}" for n in range(VOCABULARY)])
    for first in range(0, len(data.train), BATCH_ROWS):
        part = data.train[first : first + BATCH_ROWS]
        drawn_words = random.choice(VOCABULARY, size=len(part) * DOCUMENT_WORDS, p=shares)
        offsets = pa.array(np.arange(0, len(drawn_words) + 1, DOCUMENT_WORDS, dtype=np.int32))
        texts = pa.ListArray.from_arrays(offsets, words.take(pa.array(drawn_words)))
        columns = {
            "id": pa.array(np.arange(first, first + len(part))),
            "text": pc.binary_join(texts, " "),
            "dense": pa.FixedSizeListArray.from_arrays(pa.array(part.ravel()), DIM),
        }
        yield pa.RecordBatch.from_pydict(columns)


def _queries(shares: np.ndarray) -> list[str]:
    random, (low, high) = np.random.default_rng(4), QUERY_RANKS
    within = shares[low:high] / shares[low:high].sum()
    found = []
    for _ in range(QUERIES):
        picked: list[int] = random.choice(high - low, size=QUERY_WORDS, replace=False, p=within).tolist()
        found.append(" ".join(f"word{low + n}" for n in picked))
    return found
