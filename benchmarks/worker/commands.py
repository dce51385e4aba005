"""A worker's commands for any engine: insert, build, search, search against the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.worker.engine import Engine, Question, Vectors

Command = Callable[..., Any]


class Commands:
    """The calls that every engine can carry out; results are plain JSON values.

    Args:
        engine: the client under test.
        vectors: the run's data.
    """

    def __init__(self, engine: Engine, vectors: Vectors) -> None:
        self._engine = engine
        self._vectors = vectors
        self._question: Question | None = None
        self._queries: list[object] = []

    def table(self) -> Mapping[str, Command]:
        """Call name → function."""
        return {
            "ping": lambda: None,
            "create": self._engine.create,
            "insert": self.insert,
            "build_index": self.build_index,
            "search_ids": self.search_ids,
            "prepare_search": self.prepare_search,
            "search_for": self.search_for,
        }

    def insert(self, collection: str, rows: int, batch_rows: int, first: int = 0) -> dict[str, float]:
        """Insert `rows` training vectors in batches, each acknowledged before the next is sent.

        Args:
            collection: its name.
            rows: how many.
            batch_rows: of each batch.
            first: position of the first one.

        Returns:
            ``seconds`` on the clock, and ``client_cpu_s``, the CPU time of this process meanwhile.
        """
        train, buckets = self._vectors.train, self._vectors.buckets
        keys = np.arange(first + rows, dtype=np.int64)
        cpu_before, begun = time.process_time(), time.perf_counter()
        for start in range(first, first + rows, batch_rows):
            batch = slice(start, min(start + batch_rows, first + rows))
            self._engine.insert(collection, keys[batch], buckets[batch], train[batch])
        return {
            "seconds": time.perf_counter() - begun,
            "client_cpu_s": time.process_time() - cpu_before,
        }

    def build_index(self, collection: str, m: int, ef_construction: int) -> float:
        """Build the HNSW index; returns seconds."""
        return seconds_of(lambda: self._engine.build_index(collection, m, ef_construction))

    def search_ids(
        self, collection: str, queries: int, batch: int, ef: int, top_k: int, bucket_below: int | None
    ) -> list[list[int]]:
        """Answer the first `queries` test vectors, `batch` per call: the keys found, for computing recall."""
        question = Question(collection, ef, top_k, bucket_below)
        self._engine.prepare(question)
        found: list[list[int]] = []
        for first in range(0, queries, batch):
            chunk = self._vectors.test[first : min(first + batch, queries)]
            found += self._engine.search(question, self._engine.as_query(chunk))
        return found

    def prepare_search(
        self, collection: str, batch: int, ef: int, top_k: int, bucket_below: int | None, warm_up: int
    ) -> None:
        """Build every query object of `search_for` and run the first `warm_up` of them, unmeasured."""
        self._question = Question(collection, ef, top_k, bucket_below)
        self._engine.prepare(self._question)
        test = self._vectors.test
        self._queries = [
            self._engine.as_query(test[first : first + batch])
            for first in range(0, len(test) - batch + 1, batch)
        ]
        for query in self._queries[:warm_up]:
            self._engine.search(self._question, query)

    def search_for(self, seconds: float, skip: int, stop_file: str | None) -> dict[str, Any]:
        """Search one query after another until `seconds` are over or `stop_file` exists.

        Args:
            seconds: limit of the clock.
            skip: queries to skip at the start, so that several workers do not ask in step.
            stop_file: a path looked for before each search, or None.

        Returns:
            ``latency_us``, one integer per search, and ``seconds``, from the first to the end of the last.

        Raises:
            RuntimeError: `prepare_search` has not been called.
        """
        search, question, queries = self._engine.search, self._question, self._queries
        if question is None:
            raise RuntimeError("prepare_search comes before search_for")
        stop = Path(stop_file) if stop_file is not None else None
        latency_us: list[int] = []
        position = skip
        begun = now = time.perf_counter()
        while now - begun < seconds and not (stop is not None and stop.exists()):
            sent = time.perf_counter()
            search(question, queries[position % len(queries)])
            now = time.perf_counter()
            latency_us.append(round((now - sent) * 1e6))
            position += 1
        return {"latency_us": latency_us, "seconds": now - begun}


def seconds_of(action: Callable[[], object]) -> float:
    """Wall time of one call, in seconds."""
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun
