"""Reads while rows move from the log to files to indexes: no read loses or doubles one.

One writer inserts keys in order and deletes them from the low end, so that at every moment the rows are
those of one range of keys. Each reader notes what was acknowledged before it asked and what had been sent
when it was answered; the answer must lie between. When nothing is being written, that is one answer.
Queries skip a second row of a key; `count(*)` counts it, so that a doubled row shows.

Writes go through one proxy, reads through another. A last reader asks both: what one counts as of a moment is
how many rows the other finds as of that moment, then and later.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from harness import Server, as_of, fresh_timestamp, until
from pymilvus import DataType, MilvusClient

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

NAME = "moving"
DIM = 16
BATCH_ROWS = 700
BATCHES_PER_FLUSH = 3
FLUSHES = 4
DELETED_PER_BATCH = 50
DEADLINE_S = 120.0


@dataclass(slots=True)
class Moment:
    """The range of keys that is there; ``begin`` and ``end`` only grow."""

    begin: int = 0
    end: int = 0


class Writer:
    """``acknowledged`` and ``sent``: the range as it must at least, and may at most, have moved on."""

    def __init__(self, client: MilvusClient) -> None:
        self._client = client
        self.acknowledged = Moment()
        self.sent = Moment()

    def insert(self) -> None:
        first = self.sent.end
        self.sent.end += BATCH_ROWS
        rows = [{"key": key, "v": vector_of(key)} for key in range(first, self.sent.end)]
        self._client.insert(NAME, rows)
        self.acknowledged.end = self.sent.end

    def delete(self) -> None:
        first = self.sent.begin
        self.sent.begin += DELETED_PER_BATCH
        self._client.delete(NAME, ids=list(range(first, self.sent.begin)))
        self.acknowledged.begin = self.sent.begin


def vector_of(key: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.random.default_rng(key).random(DIM, dtype=np.float32)


class Readers:
    """Read again and again, each in a thread, until stopped. ``done``: how many reads each has made."""

    def __init__(self, client: MilvusClient, other: MilvusClient, writer: Writer) -> None:
        self._client = client
        self._other = other
        self._writer = writer
        self._counts: dict[int, int] = {}
        self._chance = random.Random(1)
        self._stop = threading.Event()
        self.done: dict[str, int] = {}
        reads = (self._count, self._query, self._search, self._moment)
        self._pool = ThreadPoolExecutor(len(reads))
        self._ends: list[Future[None]] = [self._pool.submit(self._repeat, read) for read in reads]

    def expect_none_failed(self) -> None:
        for end in self._ends:
            if end.done():
                end.result()

    def stop(self) -> None:
        self._stop.set()
        self._pool.shutdown()
        for end in self._ends:
            end.result()

    def _repeat(self, read: Callable[[], None]) -> None:
        while not self._stop.is_set():
            read()
            self.done[read.__name__] = self.done.get(read.__name__, 0) + 1

    def _bounds(self) -> Moment:
        return Moment(self._writer.acknowledged.begin, self._writer.acknowledged.end)

    def _count(self) -> None:
        before = self._bounds()
        answer = self._client.query(NAME, output_fields=["count(*)"], consistency_level="Strong")
        after = self._writer.sent
        low, high = before.end - after.begin, after.end - before.begin
        assert low <= answer[0]["count(*)"] <= high, f"{answer} is not within {low} and {high}"

    def _query(self) -> None:
        before = self._bounds()
        rows = self._client.query(NAME, filter="key >= 0", output_fields=["key"], consistency_level="Strong")
        after = self._writer.sent
        keys = sorted(row["key"] for row in rows)
        if not keys:
            assert before.end == 0
            return
        assert keys == list(range(keys[0], keys[-1] + 1)), "not one range of keys, each once"
        assert before.begin <= keys[0] <= after.begin
        assert before.end <= keys[-1] + 1 <= after.end

    def _search(self) -> None:
        before = self._bounds()
        if before.end == 0:
            return
        wanted = before.end - 1
        params = {"params": {"ef": 256}}
        (hits,) = self._client.search(
            NAME, [vector_of(wanted)], limit=20, search_params=params, consistency_level="Strong"
        )
        keys = [hit["key"] for hit in hits]
        assert keys[0] == wanted
        assert len(set(keys)) == len(keys)
        assert min(keys) >= before.begin, "a deleted row was found"

    def _moment(self) -> None:
        now = fresh_timestamp(self._other)
        (counted,) = self._client.query(NAME, output_fields=["count(*)"], **as_of(now))
        self._counts[now] = counted["count(*)"]
        for moment in (now, self._chance.choice(list(self._counts))):
            rows = self._other.query(NAME, filter="key >= 0", output_fields=["key"], **as_of(moment))
            assert len({row["key"] for row in rows}) == len(rows) == self._counts[moment]


def create(client: MilvusClient, shards: int) -> None:
    schema = client.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=DIM)
    params = client.prepare_index_params()
    params.add_index("v", index_type="HNSW", metric_type="L2", params={"M": 16, "efConstruction": 100})
    client.create_collection(NAME, schema=schema, index_params=params, num_shards=shards)


def is_handed_off(client: MilvusClient) -> bool:
    """Every flushed segment is served from its files, those large enough with their index."""
    index = client.describe_index(NAME, "v")
    loaded = client.list_loaded_segments(NAME)
    built = index["state"] == "Finished" and index["pending_index_rows"] == 0
    return built and all(s.state_name == "Sealed" and (s.index_name or s.num_rows < 1024) for s in loaded)


@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.long), 2])
def test_no_read_loses_or_doubles_a_row(shards: int, shared: Server, client: MilvusClient) -> None:
    create(client, shards)
    writer = Writer(client)
    readers = Readers(shared.client(1), client, writer)
    try:
        for _ in range(FLUSHES):
            for _ in range(BATCHES_PER_FLUSH):
                writer.insert()
                writer.delete()
            client.flush(NAME)
            readers.expect_none_failed()
        # nothing is written any more, while the last segments are built and exchanged: one right answer
        until(lambda: is_handed_off(client), DEADLINE_S, "everything is handed off", poll_s=0.1)
        goals = {name: done + 3 for name, done in readers.done.items()}
        until(
            lambda: readers.expect_none_failed() or all(readers.done[n] >= goal for n, goal in goals.items()),
            DEADLINE_S,
            "each reader has read the sealed segments",
        )
    finally:
        readers.stop()
    assert min(readers.done.values()) > 20, readers.done
    segments = client.list_persistent_segments(NAME)
    assert {segment.state_name for segment in segments} == {"Flushed"}
    assert sum(segment.num_rows for segment in segments) == FLUSHES * BATCHES_PER_FLUSH * BATCH_ROWS
