"""Recall of every kind on real vectors: images of digits, of which the repository has ten thousand.

The codes alone, and the codes with the vectors they stand for. Each graph is large enough to be walked.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from index_data import best, recall, scores

from elanus.core.types import DataType
from elanus.index import VectorIndex, build, plan, resolve_index, resolve_search

pytestmark = pytest.mark.slow

ROWS, DIM, QUERIES, K = 4000, 196, 40, 10
DIGITS = Path(__file__).parents[3] / "examples" / "data" / "mnist-small.npz"
GRAPH = {"M": "8", "efConstruction": "40"}
LISTS = {"nlist": "32"}
PARTS = {"m": "49", "nbits": "6"}
REFINED = {"refine": "true"}
CASES = {
    "HNSW": (GRAPH, {"ef": 64}, 0.97),
    "HNSW_SQ SQ4U": (GRAPH | {"sq_type": "SQ4U"}, {"ef": 64}, 0.75),
    "HNSW_SQ SQ6": (GRAPH | {"sq_type": "sq6"}, {"ef": 64}, 0.95),
    "HNSW_SQ SQ8": (GRAPH, {"ef": 64}, 0.97),
    "HNSW_SQ BF16": (GRAPH | {"sq_type": "BF16"}, {"ef": 64}, 0.97),
    "HNSW_SQ FP16": (GRAPH | {"sq_type": "FP16"}, {"ef": 64}, 0.97),
    "HNSW_SQ refined": (GRAPH | {"sq_type": "SQ4U"} | REFINED, {"ef": 64}, 0.97),
    "HNSW_PQ": (GRAPH | PARTS, {"ef": 64}, 0.65),
    "HNSW_PQ refined": (GRAPH | PARTS | REFINED, {"ef": 64}, 0.97),
    "HNSW_PRQ": (GRAPH | {"m": "14", "nbits": "4"}, {"ef": 64}, 0.4),
    "HNSW_PRQ refined": (GRAPH | {"m": "14", "nbits": "4"} | REFINED, {"ef": 64}, 0.95),
    "DISKANN": ({"max_degree": "24", "search_list_size": "40"}, {"search_list": 64}, 0.97),
    "IVF_FLAT": (LISTS, {"nprobe": 12}, 0.95),
    "IVF_SQ8": (LISTS, {"nprobe": 12}, 0.95),
    "IVF_PQ": (LISTS | PARTS, {"nprobe": 12}, 0.75),
    "IVF_PQ refined": (LISTS | PARTS | REFINED, {"nprobe": 12}, 0.95),
    "IVF_RABITQ": (LISTS, {"nprobe": 12}, 0.65),
    "IVF_RABITQ query of 4 bits": (LISTS, {"nprobe": 12, "rbq_query_bits": 4}, 0.5),
    "IVF_RABITQ refined": (LISTS | REFINED, {"nprobe": 12, "refine_k": 2}, 0.95),
    "IVF_RABITQ_FASTSCAN": (LISTS, {"nprobe": 12}, 0.65),
    "IVF_RABITQ_FASTSCAN refined": (LISTS | REFINED, {"nprobe": 12, "refine_k": 2}, 0.95),
    "SCANN": (LISTS, {"nprobe": 12}, 0.95),
    "SCANN codes only": (LISTS | {"with_raw_data": "false"}, {"nprobe": 12}, 0.75),
}


@lru_cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """The rows and the queries, at a quarter of their pixels."""
    held = np.load(DIGITS)
    rows, queries = held["train"][:ROWS], held["test"][:QUERIES]
    return _smaller(rows), _smaller(queries)


def _smaller(images: np.ndarray) -> np.ndarray:
    pixels = images.reshape(len(images), 14, 2, 14, 2).astype(np.float32)
    return np.ascontiguousarray(pixels.mean(axis=(2, 4)).reshape(len(images), DIM))


def index_of(case: str, metric: str) -> VectorIndex:
    sent = {"index_type": case.split()[0], "metric_type": metric} | CASES[case][0]
    index = build(resolve_index(sent, DataType.FLOAT_VECTOR, DIM), digits()[0], threads=1)
    assert isinstance(index, VectorIndex)
    return index


@pytest.mark.parametrize(("case", "metric"), list(zip(CASES, cycle(["L2", "COSINE"]), strict=False)))
def test_recall(case: str, metric: str) -> None:
    rows, queries = digits()
    index = index_of(case, metric)
    params = resolve_search(index.spec, CASES[case][1], K)
    hits = [index.search(query[None], K, params) for query in queries]
    truth = best(scores(queries, rows, metric), K, metric)
    got = recall(np.concatenate([found.rows for found in hits]), truth)
    assert got >= CASES[case][2]


def test_the_graphs_are_walked() -> None:
    walk = plan.walk(rows=ROWS, visible=ROWS, dim=DIM, links=8, k=K, ef=64, queries=1, share=1.0)
    assert walk == (64, K)
