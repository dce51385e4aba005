"""Reads that programs rely on: their own writes, all pages of an iterator, sorted segments."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from harness import until
from pymilvus import DataType, MilvusClient

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

NAME = "read_back"
DIM = 8
ROWS = 700
DEADLINE_S = 120.0
CHANCE = np.random.default_rng(3)
KEYS = CHANCE.permutation(ROWS)
VECTORS = CHANCE.normal(size=(ROWS, DIM)).astype(np.float32).round(1)
VECTORS[100:300] = VECTORS[100]  # far more of one distance than a page holds


def made(client: MilvusClient) -> None:
    schema = client.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=DIM)
    params = client.prepare_index_params()
    params.add_index("v", index_type="HNSW", metric_type="L2", params={"M": 8, "efConstruction": 60})
    client.create_collection(NAME, schema=schema, index_params=params, consistency_level="Bounded")


def put(client: MilvusClient, start: int, stop: int) -> None:
    client.insert(NAME, [{"key": int(KEYS[n]), "v": VECTORS[n].tolist()} for n in range(start, stop)])


def test_a_client_reads_at_once_what_it_has_written(client: MilvusClient) -> None:
    made(client)
    for number in range(20):
        row = {"key": number, "v": [float(number)] * DIM}
        client.insert(NAME, [row])
        assert [hit["key"] for hit in client.get(NAME, number)] == [number]
        (hits,) = client.search(NAME, [row["v"]], limit=1)
        assert hits[0]["key"] == number
        client.upsert(NAME, [{"key": number, "v": [-1.0 - number] * DIM}])
        (hits,) = client.search(NAME, [[-1.0 - number] * DIM], limit=1)
        assert (hits[0]["key"], hits[0]["distance"]) == (number, 0)
    client.delete(NAME, filter="key >= 5")
    assert client.query(NAME, filter="key >= 0", output_fields=["count(*)"])[0]["count(*)"] == 5


@pytest.mark.parametrize("batch", [7, 64])
def test_an_iterator_returns_every_row_once_while_others_write(client: MilvusClient, batch: int) -> None:
    made(client)
    put(client, 0, 400)
    client.flush(NAME)
    put(client, 400, ROWS)
    pages = client.search_iterator(NAME, [VECTORS[100].tolist()], batch_size=batch, output_fields=["key"])
    assert type(pages).__name__ == "SearchIteratorV2", "the client has fallen back to the first generation"
    keys: list[int] = []
    distances: list[float] = []
    for number in itertools.count():
        page = pages.next()
        if not page:
            break
        assert len(page) <= batch
        keys += [hit["key"] for hit in page]
        distances += [hit["distance"] for hit in page]
        client.insert(NAME, [{"key": 10_000 + number, "v": VECTORS[100].tolist()}])
        client.delete(NAME, ids=[int(KEYS[number])])
    pages.close()
    assert distances == sorted(distances)
    assert len(keys) == ROWS
    assert sorted(keys) == list(range(ROWS))


def test_flushed_segments_are_sorted_and_merged_up_to_a_target(client: MilvusClient) -> None:
    made(client)
    for start in range(0, ROWS, 350):
        put(client, start, start + 350)
        client.flush(NAME)
    segments = client.list_persistent_segments(NAME)
    assert sum(segment.num_rows for segment in segments) == ROWS
    assert all(segment.is_sorted for segment in segments)
    assert {segment.level for segment in segments} == {2}
    job = client.compact(NAME, target_size=2**42)
    until(lambda: client.get_compaction_state(job) == "Completed", DEADLINE_S, "compaction")
    assert all(segment.is_sorted for segment in client.list_persistent_segments(NAME))
    until(lambda: all(s.is_sorted for s in client.list_loaded_segments(NAME)), DEADLINE_S, "handoff")
    assert all(segment.mem_size > 0 for segment in client.list_loaded_segments(NAME))
