"""A worker's commands for a server only: load, write at a rate, read its own writes, come back.

Rows that these calls add are far from every query, at ten times the data's span, so that the exact answers
computed before the run still hold.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from pymilvus import MilvusException

from benchmarks.worker.commands import Command, Commands, seconds_of
from benchmarks.worker.engine import Floats, Question, Vectors
from benchmarks.worker.milvus_engine import MilvusEngine

FAR = 10
RETRY_S = 0.02
ATTEMPT_S = 5
#: Buckets of added rows: outside every filter that a measure uses.
ADDED_BUCKET = 99


class ServerCommands(Commands):
    """`Commands`, and those that need a server behind the client."""

    def __init__(self, engine: MilvusEngine, vectors: Vectors) -> None:
        super().__init__(engine, vectors)
        self._server = engine

    def table(self) -> Mapping[str, Command]:
        """Call name → function."""
        return {
            **super().table(),
            "connect": self._server.connect,
            "drop": self._server.drop,
            "flush": lambda collection: seconds_of(lambda: self._server.flush(collection)),
            "load": lambda collection: seconds_of(lambda: self._server.load(collection)),
            "settle": self.settle,
            "insert_at_rate": self.insert_at_rate,
            "read_after_insert": self.read_after_insert,
            "read_after_delete": self.read_after_delete,
            "until_searchable": self.until_searchable,
        }

    def settle(self, collection: str, rows: int, timeout_s: float) -> dict[str, Any]:
        """Wait until all rows are in sealed segments; ``seconds``, and whether that is ``reported``."""
        begun = time.perf_counter()
        reported = self._server.settle(collection, rows, timeout_s)
        return {"seconds": time.perf_counter() - begun, "reported": reported}

    def insert_at_rate(
        self, collection: str, first_key: int, rows_per_s: int, batch_rows: int, seconds: float
    ) -> dict[str, float]:
        """Insert added rows at a steady rate; returns ``rows`` and the ``seconds`` that they took.

        A batch that is late is sent at once: the rate falls behind only when the system does.
        """
        rows = 0
        begun = time.perf_counter()
        while (elapsed := time.perf_counter() - begun) < seconds:
            due = rows / rows_per_s
            if elapsed < due:
                time.sleep(due - elapsed)
            self._add(collection, first_key + rows, batch_rows)
            rows += batch_rows
        return {"rows": rows, "seconds": time.perf_counter() - begun}

    def read_after_insert(self, collection: str, first_key: int, repeats: int) -> dict[str, Any]:
        """Insert a row, read it back at Strong; times of each, and how many reads went ``wrong``."""
        return self._write_then_read(collection, range(first_key, first_key + repeats), delete=False)

    def read_after_delete(self, collection: str, first_key: int, repeats: int) -> dict[str, Any]:
        """Delete a row, look it up at Strong; times of each, and how many reads went ``wrong``."""
        return self._write_then_read(collection, range(first_key, first_key + repeats), delete=True)

    def until_searchable(
        self, collection: str, queries: int, ef: int, top_k: int, truth: list[list[int]], timeout_s: float
    ) -> dict[str, Any]:
        """Connect, load if need be, and search until the answers are right again.

        Args:
            truth: exact keys per query; answers count as right when nine in ten of them are there.

        Returns:
            ``seconds`` until then, and whether it had to be ``loaded`` again.

        Raises:
            TimeoutError: not within `timeout_s`; the message holds the last error.
        """
        begun = time.perf_counter()
        self._server.connect(timeout_s)
        question = Question(collection, ef, top_k)
        query = self._server.as_query(self._vectors.test[:queries])
        wanted = sum(len(keys) for keys in truth)
        loaded, reason = False, "the answers are incomplete"
        while time.perf_counter() - begun < timeout_s:
            try:
                found = self._server.search(question, query, timeout_s=ATTEMPT_S)
            except MilvusException as error:
                reason = str(error)
                loaded |= self._load_if_released(collection)
                time.sleep(RETRY_S)
                continue
            hits = sum(len(set(a) & set(b)) for a, b in zip(found, truth, strict=True))
            if hits >= 0.9 * wanted:
                return {"seconds": time.perf_counter() - begun, "loaded": loaded}
        raise TimeoutError(f"not searchable after {timeout_s} s: {reason}")

    def _load_if_released(self, collection: str) -> bool:
        try:
            return self._server.load_if_released(collection)
        except MilvusException:
            return False  # not ready for that either; the caller tries again

    def _write_then_read(self, collection: str, keys: range, *, delete: bool) -> dict[str, Any]:
        write_ms, read_ms, wrong = [], [], 0
        for key in keys:
            begun = time.perf_counter()
            if delete:
                self._server.delete(collection, key)
            else:
                self._add(collection, key, 1)
            written = time.perf_counter()
            found = self._server.strong_lookup(collection, key)
            read_ms.append((time.perf_counter() - written) * 1e3)
            write_ms.append((written - begun) * 1e3)
            wrong += found is delete
        return {"write_ms": write_ms, "read_ms": read_ms, "wrong": wrong}

    def _add(self, collection: str, first_key: int, rows: int) -> None:
        keys = np.arange(first_key, first_key + rows, dtype=np.int64)
        buckets = np.full(rows, ADDED_BUCKET, dtype=np.int64)
        self._server.insert(collection, keys, buckets, self._far_rows(rows))

    def _far_rows(self, rows: int) -> Floats:
        picks = np.arange(rows) % len(self._far_pool)
        return np.ascontiguousarray(self._far_pool[picks])

    @cached_property
    def _far_pool(self) -> Floats:
        pool = np.asarray(self._vectors.train[:1000], dtype=np.float32)
        return pool + np.float32(FAR * np.ptp(pool))
