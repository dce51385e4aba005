"""How soon the change feed has a row: from the acknowledgement of its insert until a reader has it.

Two readers follow one collection, one after the other: the Python iterator, asked again as soon as it has
ended, and a stream of Spark without a pause between its batches (``foreachBatch``). Rows are inserted one at
a time, each when the reader has the one before. The server is warm, its settings as they come. The feed
reads files, so each time the server first brings the log's new entries into files.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np

from benchmarks.limits.server import DIM, LimitServer, create, serving

_NAME = "followed"
_WAIT_S = 600.0
_WARM_UP = 5
"""Rows before those that count."""


class Lags(msgspec.Struct, frozen=True):
    """Seconds from the acknowledgement of each row until the reader has it."""

    iterator_s: list[float]
    stream_s: list[float]


def summary(lags: Lags) -> str:
    """Raises `statistics.StatisticsError` without rows."""
    return (
        f"a row is in the feed {_figure(lags.iterator_s)} after its acknowledgement by the iterator, "
        f"{_figure(lags.stream_s)} by the stream (the median and the slowest of {len(lags.iterator_s)})"
    )


def _figure(seconds: Sequence[float]) -> str:
    return f"{median(seconds):.2f} s ({max(seconds):.2f} s)"


class _Seen:
    """The rows that a reader had, and when."""

    def __init__(self) -> None:
        self._at_s: dict[int, float] = {}
        self._error: Exception | None = None
        self._changed = threading.Condition()

    def add(self, keys: Sequence[int]) -> None:
        now_s = time.perf_counter()
        with self._changed:
            for key in keys:
                self._at_s.setdefault(key, now_s)
            self._changed.notify_all()

    def fail(self, error: Exception) -> None:
        """Raise an error of the reader where its rows are waited for."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def wait_for(self, key: int) -> float:
        """Return when the reader had the row. Raises `TimeoutError`, and what ended the reader."""
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._at_s or self._error is not None, _WAIT_S):
                raise TimeoutError(f"the feed has no row {key} after {_WAIT_S:g} s")
            if self._error is not None:
                raise self._error
            return self._at_s[key]


def measure(rows: int, say: Callable[[str], None]) -> Lags:
    """Measure with so many rows for each reader."""
    with serving(0) as server, tempfile.TemporaryDirectory() as checkpoints:
        create(server.client, _NAME, load=False)
        uri = f"http://{server.address}"
        say("the iterator")
        iterator_s = _followed(server, 0, rows, lambda seen, ends: _iterate(uri, seen, ends))
        say("the stream")
        stream_s = _followed(
            server, rows + _WARM_UP, rows, lambda seen, ends: _stream(uri, checkpoints, seen, ends)
        )
    return Lags(iterator_s, stream_s)


def _followed(
    server: LimitServer, first: int, rows: int, read: Callable[[_Seen, threading.Event], None]
) -> list[float]:
    seen, ends = _Seen(), threading.Event()
    reader = threading.Thread(target=read, args=(seen, ends))
    reader.start()
    lags_s = []
    try:
        for key in range(first, first + _WARM_UP + rows):
            vector = np.full(DIM, key, np.float32)
            server.client.insert(_NAME, [{"id": key, "v": vector}])
            acknowledged_s = time.perf_counter()
            lags_s.append(round(seen.wait_for(key) - acknowledged_s, 3))
    finally:
        ends.set()
        reader.join()
    return lags_s[_WARM_UP:]


def _iterate(uri: str, seen: _Seen, ends: threading.Event) -> None:
    from elanus.spark.changes import changes

    since = 0
    while not ends.is_set():
        feed = changes(_NAME, since, uri=uri, columns="id")
        for batch in feed:
            seen.add(batch["id"].to_pylist())
        since = feed.until


def _stream(uri: str, checkpoints: str, seen: _Seen, ends: threading.Event) -> None:
    from pyspark.sql import DataFrame, SparkSession

    from elanus.spark import register

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "1",
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()

    def note(frame: DataFrame, _: int) -> None:
        seen.add([row.id for row in frame.select("id").collect()])

    try:
        register(spark)
        changed: Any = spark.readStream.format("elanus").options(
            uri=uri, collection=_NAME, changes_from="0", columns="id"
        )
        query = (
            changed.load()
            .writeStream.foreachBatch(note)
            .option("checkpointLocation", str(Path(checkpoints) / "stream"))
            .start()
        )
        while not ends.wait(1.0):
            if (error := query.exception()) is not None:
                seen.fail(error)
                return
        query.stop()
    finally:
        spark.stop()
