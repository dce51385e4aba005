"""Compaction as a client sees it: it asks, follows the plans, and its answers do not change meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from harness import Server, until
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import MilvusException

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

DEADLINE_S = 120.0
DIM = 16
BATCH_ROWS, BATCHES = 3_000, 3
NAME = "chapters"
DELETED = 1_000
SETTINGS = {"datacoord.retention_s": 0, "compaction.enabled": False, "indexcoord.index_rows_min": 500}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("compaction") / "data", SETTINGS) as server:
        yield server.start().wait_for_spark()


def vectors() -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.random.default_rng(5).random((BATCH_ROWS * BATCHES, DIM), dtype=np.float32)


def fill(client: MilvusClient, name: str) -> None:
    """Three small flushed segments, each with an index; rows of the first deleted before the last."""
    schema = client.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=DIM)
    params = client.prepare_index_params()
    params.add_index("v", index_type="HNSW", metric_type="L2", params={"M": 8, "efConstruction": 64})
    client.create_collection(name, schema=schema, index_params=params, num_shards=1)
    rows = vectors()
    for first in range(0, len(rows), BATCH_ROWS):
        if first == 2 * BATCH_ROWS:
            client.delete(name, filter=f"key < {DELETED}")
        client.insert(name, [{"key": n, "v": rows[n]} for n in range(first, first + BATCH_ROWS)])
        client.flush(name)


class Reader:
    """Counts and searches all the time; every answer must be the same."""

    def __init__(self, server: Server, name: str) -> None:
        self._client = server.client()
        self._name = name
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self.wrong: list[object] = []
        self.answers = 0

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        self._thread.join()

    def _read(self) -> None:
        rows = vectors()
        while not self._ended.is_set():
            try:
                found = check(self._client, self._name, rows, self.answers)
            except Exception as error:  # noqa: BLE001 - the test reports any error
                found = error
            if found is not None:
                self.wrong.append(found)
                return
            self.answers += 1


def check(client: MilvusClient, name: str, rows: np.ndarray, turn: int) -> object:  # type: ignore[type-arg]
    """The fault of a count or a search, or None. Rows are counted one by one, doubles included."""
    (counted,) = client.query(name, output_fields=["count(*)"], consistency_level="Strong")
    if counted["count(*)"] != len(rows) - DELETED:
        return counted
    key = DELETED + (turn * 997) % (len(rows) - DELETED)
    (hits,) = client.search(name, [rows[key].tolist()], limit=10, search_params={"params": {"ef": 64}})
    if hits[0]["key"] != key or len({hit["key"] for hit in hits}) != 10:
        return key, hits
    if any(hit["key"] < DELETED for hit in hits):
        return "deleted", hits
    return None


def segments(client: MilvusClient, name: str) -> dict[int, int]:
    return {s.segment_id: s.num_rows for s in client.list_persistent_segments(name)}


def loaded(client: MilvusClient, name: str) -> list[tuple[int, str]]:
    return [(s.segment_id, s.index_name) for s in client.list_loaded_segments(name) if s.num_rows]


def wait_until_served(client: MilvusClient, name: str) -> None:
    def is_served() -> bool:
        return sorted(loaded(client, name)) == [(s, "v") for s in sorted(segments(client, name))]

    until(is_served, DEADLINE_S, "every segment is served with its index", poll_s=0.1)


def test_compaction_changes_segments_and_no_answer(server: Server) -> None:
    client = server.client()
    fill(client, NAME)
    wait_until_served(client, NAME)
    before = segments(client, NAME)
    assert sorted(before.values()) == [BATCH_ROWS] * BATCHES
    with Reader(server, NAME) as reader:
        until(lambda: reader.answers or reader.wrong, DEADLINE_S, "it reads")
        compaction = client.compact(NAME)
        until(lambda: is_over(client, compaction), DEADLINE_S, "it is over", poll_s=0.1)
        (plan,) = client._get_connection().get_compaction_plans(compaction).plans
        answered = reader.answers
        wait_until_served(client, NAME)
        until(lambda: reader.answers > answered or reader.wrong, DEADLINE_S, "it reads the result")
    assert reader.wrong == []
    assert sorted(plan.sources) == sorted(before)
    assert segments(client, NAME) == {plan.target: len(vectors()) - DELETED}, "deleted rows are gone"
    assert client.get_compaction_state(client.compact(NAME)) == "Completed", "there is nothing left to do"
    assert segments(client, NAME) == {plan.target: len(vectors()) - DELETED}


def test_deletes_that_were_just_made_are_folded_in(server: Server) -> None:
    """They lie in the log alone until the compaction, or a flush, has them brought into files."""
    client = server.client()
    deleted = 2 * DELETED
    client.delete(NAME, filter=f"{DELETED} <= key < {deleted}")
    compaction = client.compact(NAME)
    until(lambda: is_over(client, compaction), DEADLINE_S, "it is over", poll_s=0.1)
    assert list(segments(client, NAME).values()) == [len(vectors()) - deleted]


def test_a_killed_pipeline_compacts_when_it_is_back(server: Server) -> None:
    client = server.client()
    name = "killed"
    fill(client, name)
    wait_until_served(client, name)
    with Reader(server, name) as reader:
        server.pipeline_process().suspend()  # so that the compaction is not over before the kill
        compaction = client.compact(name)
        server.kill_pipeline()
        assert client.get_compaction_state(compaction) == "Executing"
        server.wait_for_spark()
        until(lambda: is_over(client, compaction), DEADLINE_S, "it is over", poll_s=0.1)
    assert reader.wrong == []
    assert reader.answers > 0
    assert list(segments(client, name).values()) == [len(vectors()) - DELETED], "compacted once"
    server.restart_role("querynode")
    found = until(lambda: check_or_none(client, name), DEADLINE_S, "it is loaded again")
    assert found == "right"


def is_over(client: MilvusClient, compaction: int) -> bool:
    return bool(client.get_compaction_state(compaction) == "Completed")


def check_or_none(client: MilvusClient, name: str) -> object:
    try:
        return check(client, name, vectors(), 1) or "right"
    except MilvusException as error:
        if "not loaded" in error.message or "not fully loaded" in error.message:
            return None
        raise
