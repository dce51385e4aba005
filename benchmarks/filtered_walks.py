"""Filters over one graph: recall, and processor time by that of the search without a filter.

    .venv/bin/python -m benchmarks.filtered_walks mnist-784.npz

The file has the arrays ``train``, ``test`` and ``train_label``: some filters hide whole classes of the rows.
Queries are searched one at a time, in one process, without a server; searches of all filters take turns.
Next to them stands the recall of faiss's own filter, a bitmap that is tested during the walk.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.metrics import median, recall
from elanus.core.types import DataType
from elanus.index import RowMask, SearchParams, VectorIndex, build, resolve_index, resolve_search
from elanus.index.hnsw import HnswIndex
from elanus.index.library import faiss

QUERIES, K, LINKS, EFS, BITMAP_EF, ROUNDS = 200, 10, 16, (10, 64), 16, 5
Rows = npt.NDArray[np.int64]
Visible = npt.NDArray[np.bool_]


def filters(labels: npt.NDArray[Any]) -> dict[str, Visible | None]:
    """Return which rows each filter leaves, by its name; None for all of them."""
    chance = np.random.default_rng(3).random(len(labels))
    return {
        "all": None,
        "random 99 %": chance < 0.99,
        "random 90 %": chance < 0.9,
        "random 50 %": chance < 0.5,
        "random 25 %": chance < 0.25,
        "label < 2": labels < 2,
        "label < 5": labels < 5,
        "label < 5 and random 50 %": (labels < 5) & (chance < 0.5),
        "label ≠ 3": labels != 3,
    }


def measure(path: Path, say: Callable[[str], None]) -> None:
    """Say a table in Markdown, a line for each filter."""
    with np.load(path) as arrays:
        rows = np.ascontiguousarray(arrays["train"], dtype=np.float32)
        queries = arrays["test"][:QUERIES].astype(np.float32)
        left = filters(arrays["train_label"])
    sent = {"metric_type": "L2", "M": str(LINKS), "efConstruction": "200"}
    spec = resolve_index({**sent, "index_type": "HNSW"}, DataType.FLOAT_VECTOR, rows.shape[1])
    index = build(spec, rows, 2)
    assert isinstance(index, HnswIndex)
    masks = {name: None if visible is None else RowMask.from_bool(visible) for name, visible in left.items()}
    flat = resolve_index({"index_type": "FLAT", "metric_type": "L2"}, DataType.FLOAT_VECTOR, rows.shape[1])
    exact = build(flat, rows, 1)
    assert isinstance(exact, VectorIndex)
    truth = {name: exact.search(queries, K, SearchParams(), mask, 1).rows for name, mask in masks.items()}
    met: dict[tuple[str, int], tuple[float, float]] = {}
    for ef in EFS:
        turns = [
            {name: _asked(index, queries, ef, mask) for name, mask in masks.items()} for _ in range(ROUNDS)
        ]
        plain_s = median([of_round["all"][1] for of_round in turns])
        for name in masks:
            ratio = median([of_round[name][1] for of_round in turns]) / plain_s
            met[name, ef] = recall(turns[0][name][0].tolist(), truth[name].tolist()), ratio
    heads = "".join(f" `ef` {ef}: recall@{K} | time |" for ef in EFS)
    say(f"| visible rows |{heads} bitmap in the walk: recall@{K} |")
    say("|---|" + "--:|" * (2 * len(EFS) + 1))
    for name, visible in left.items():
        cells = "".join(f" {met[name, ef][0]:.3f} | {met[name, ef][1]:.1f} |" for ef in EFS)
        say(f"| {name} |{cells} {_by_bitmap(index, queries, visible, truth[name])} |")


def _asked(
    index: VectorIndex, queries: npt.NDArray[np.float32], ef: int, mask: RowMask | None
) -> tuple[Rows, float]:
    """Return the rows found, (queries, K), and the median processor time of one search in seconds."""
    params, found, times_s = resolve_search(index.spec, {"ef": ef}, K), [], []
    for query in queries:
        began_s = time.thread_time()
        found.append(index.search(query[None], K, params, mask, 1).rows[0])
        times_s.append(time.thread_time() - began_s)
    return np.array(found), median(times_s)


def _by_bitmap(
    index: HnswIndex, queries: npt.NDArray[np.float32], visible: Visible | None, truth: Rows
) -> str:
    """The recall of faiss's filter; nothing for all rows."""
    if visible is None:
        return ""
    chosen = faiss.IDSelectorBitmap(np.packbits(visible, bitorder="little"))
    params = faiss.SearchParametersHNSW(efSearch=BITMAP_EF, sel=chosen)
    _, found = index.graph.search(queries, K, params=params)
    return f"{recall(found.tolist(), truth.tolist()):.3f}"


if __name__ == "__main__":
    measure(Path(sys.argv[1]), print)
