"""Kills aimed at the moments when data changes hands: a flush, an index build, a handoff."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from harness import Server, until
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import MilvusException

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.kills]

DEADLINE_S = 180.0
DIM = 64
ROWS = 30_000
BATCH_ROWS = 5_000
HANDED_OFF_ROWS = 3000
NAME = "vectors"
VICTIMS = ("online", "pipeline", "both")


def victims(first: str) -> list[Any]:
    """`make test` kills the ``first``, `make test-long` the others."""
    return [pytest.param(v, marks=() if v == first else pytest.mark.long) for v in VICTIMS]


def vectors(rows: int = ROWS) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.random.default_rng(7).random((rows, DIM), dtype=np.float32)


def create(client: MilvusClient) -> None:
    schema = client.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=DIM)
    params = client.prepare_index_params()
    params.add_index("v", index_type="HNSW", metric_type="L2", params={"M": 16, "efConstruction": 200})
    client.create_collection(NAME, schema=schema, index_params=params, num_shards=1)


def insert(client: MilvusClient, rows: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> None:
    for first in range(0, len(rows), BATCH_ROWS):
        batch = rows[first : first + BATCH_ROWS]
        client.insert(NAME, [{"key": first + n, "v": row} for n, row in enumerate(batch)])


def count(client: MilvusClient) -> int | None:
    """count(*), or None while the collection is being loaded again. Never a number in between."""
    try:
        answer = client.query(NAME, output_fields=["count(*)"], consistency_level="Strong")
    except MilvusException as error:
        if "loaded" in error.message:
            return None
        raise
    return int(answer[0]["count(*)"])


def expect_rows(server: Server, expected: int) -> MilvusClient:
    client = server.client()
    found = until(lambda: count(client), DEADLINE_S, "the collection is loaded again")
    assert found == expected
    return client


def kill(server: Server, victim: str) -> None:
    """Kill, and start again what does not come back by itself."""
    if victim == "pipeline":
        server.kill_pipeline()
        return
    if victim == "both":
        server.kill_both()
    else:
        server.kill()
    server.start()


def wait_for_job(server: Server, kind: str) -> None:
    """Until such a job runs. Fails at once when one has ended before it was seen: nothing would be struck."""

    def runs() -> bool:
        states = {job["state"] for job in server.status()["jobs"] if job["kind"] == kind}
        assert "finished" not in states, f"the {kind} job was over before anybody saw it run"
        return "running" in states

    until(runs, DEADLINE_S, f"a {kind} job runs", poll_s=0.005)


def begin_flush(client: MilvusClient) -> threading.Thread:
    """Flush in the background; a kill of the server ends it with an error that is of no interest."""

    def flush() -> None:
        try:
            client.flush(NAME, timeout=DEADLINE_S, retry_times=0)
        except MilvusException:
            return

    thread = threading.Thread(target=flush)
    thread.start()
    return thread


@pytest.mark.parametrize("victim", victims("both"))
def test_a_kill_during_a_flush(victim: str, new_server: Callable[..., Server]) -> None:
    server = new_server().start().wait_for_spark()
    client = server.client()
    create(client)
    insert(client, vectors())  # enough that the job takes a while
    client.delete(NAME, ids=list(range(100)))
    flush = begin_flush(client)
    wait_for_job(server, "flush")
    kill(server, victim)
    flush.join(DEADLINE_S)
    client = expect_rows(server, ROWS - 100)
    client.flush(NAME, timeout=DEADLINE_S)
    segments = client.list_persistent_segments(NAME)
    assert [segment.state_name for segment in segments] == ["Flushed"]
    assert segments[0].num_rows == ROWS
    assert count(client) == ROWS - 100


@pytest.mark.parametrize("victim", victims("pipeline"))
def test_a_kill_during_an_index_build(victim: str, new_server: Callable[..., Server]) -> None:
    server = new_server().start().wait_for_spark()
    client = server.client()
    create(client)
    rows = vectors()
    insert(client, rows)
    client.flush(NAME, timeout=DEADLINE_S)
    wait_for_job(server, "index build")
    kill(server, victim)
    client = expect_rows(server, ROWS)
    wait_until_indexed(client)
    assert count(client) == ROWS
    assert recall(client, rows) >= 0.95


def wait_until_indexed(client: MilvusClient) -> None:
    def is_indexed() -> bool:
        index = client.describe_index(NAME, "v")
        loaded = client.list_loaded_segments(NAME)
        built = index["state"] == "Finished" and index["pending_index_rows"] == 0
        return built and bool(loaded) and all(s.state_name == "Sealed" and s.index_name for s in loaded)

    until(is_indexed, DEADLINE_S, "every segment is served with its index", poll_s=0.1)


def recall(client: MilvusClient, rows: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> float:
    """The share of the ten exact neighbors of twenty rows that is found."""
    queries = rows[::1500]
    hits = client.search(NAME, list(queries), limit=10, search_params={"params": {"ef": 200}})
    distances = ((queries[:, None, :] - rows[None, :, :]) ** 2).sum(axis=2)
    exact = np.argsort(distances, axis=1)[:, :10]
    found = [[hit["key"] for hit in query] for query in hits]
    return float(np.mean([len(set(f) & set(e)) / 10 for f, e in zip(found, exact.tolist(), strict=True)]))


@pytest.mark.parametrize("state", ["Flushed", pytest.param("Sealed", marks=pytest.mark.long)])
@pytest.mark.parametrize("victim", ["online", pytest.param("both", marks=pytest.mark.long)])
def test_a_kill_at_the_handoff(state: str, victim: str, new_server: Callable[..., Server]) -> None:
    """At the moment when a segment is flushed, or begins to be served from its files."""
    server = new_server().start().wait_for_spark()
    client = server.client()
    create(client)
    insert(client, vectors(HANDED_OFF_ROWS))
    flush = begin_flush(client)
    segments = client.list_persistent_segments if state == "Flushed" else client.list_loaded_segments
    until(
        lambda: _rows_in_state(segments(NAME), state) >= HANDED_OFF_ROWS,
        DEADLINE_S,
        f"the rows are {state}",
        poll_s=0.002,
    )
    kill(server, victim)
    flush.join(DEADLINE_S)
    client = expect_rows(server, HANDED_OFF_ROWS)
    wait_until_indexed(client)
    assert count(client) == HANDED_OFF_ROWS


def _rows_in_state(segments: list[object], state: str) -> int:
    return sum(s.num_rows for s in segments if s.state_name == state)
