"""Nullable vectors, moments, geometries and texts: growing, indexed, loaded again, changed; the example."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from harness import Server, until
from pymilvus import DataType, MilvusClient

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

NAME, DIM, ROWS, DEADLINE_S = "types", 8, 600, 120.0
FLOATS = np.random.default_rng(1).random((ROWS, DIM), dtype=np.float32)
Which = Callable[[int], bool]


def never(_: int) -> bool:
    return False


VECTORS: dict[str, tuple[DataType, dict[str, Any], Callable[[int], Any], Which]] = {
    "floats": (
        DataType.FLOAT_VECTOR,
        {"index_type": "HNSW", "metric_type": "L2"},
        lambda n: FLOATS[n].tolist(),
        lambda n: n % 3 > 0,
    ),
    "half": (
        DataType.FLOAT16_VECTOR,
        {"index_type": "IVF_FLAT", "metric_type": "L2", "params": {"nlist": 4}},
        lambda n: FLOATS[n].astype(np.float16),
        lambda n: n % 3 > 0,
    ),
    "brain": (
        DataType.BFLOAT16_VECTOR,
        {"index_type": "FLAT", "metric_type": "COSINE"},
        lambda n: FLOATS[n].astype(ml_dtypes.bfloat16).tobytes(),
        lambda n: n % 2 == 1,
    ),
    "signed": (
        DataType.INT8_VECTOR,
        {"index_type": "AUTOINDEX", "metric_type": "COSINE"},
        lambda n: (FLOATS[n] * 100).astype(np.int8),
        lambda n: n % 7 > 0,
    ),
    "bits": (
        DataType.BINARY_VECTOR,
        {"index_type": "BIN_IVF_FLAT", "metric_type": "HAMMING", "params": {"nlist": 4}},
        lambda n: bytes([n % 256]),
        lambda n: n % 3 == 1,
    ),
    "sparse": (
        DataType.SPARSE_FLOAT_VECTOR,
        {"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "IP"},
        lambda n: {n + 1: 1.0, 0: 0.5},
        lambda n: n % 3 == 2,
    ),
    "empty": (
        DataType.FLOAT_VECTOR,
        {"index_type": "HNSW", "metric_type": "L2"},
        lambda n: FLOATS[n].tolist(),
        never,
    ),
}


def row(n: int) -> dict[str, Any]:
    return {
        "id": n,
        "t": f"2025-01-{n % 28 + 1:02d}T00:00:00Z" if n % 5 else None,
        "place": f"POINT ({n % 10} {n // 10})" if n % 4 else None,
        "body": f"text {n}" if n % 6 else None,
        **{name: value(n) if has(n) else None for name, (_, _, value, has) in VECTORS.items()},
    }


def live(which: Which, rows: int = ROWS) -> list[int]:
    return [n for n in range(rows) if which(n)]


@pytest.fixture(scope="module")
def client(shared: Server) -> Iterator[MilvusClient]:
    client = MilvusClient(shared.uri)
    schema = client.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("t", DataType.TIMESTAMPTZ, nullable=True)
    schema.add_field("place", DataType.GEOMETRY, nullable=True)
    schema.add_field("body", DataType.TEXT, nullable=True, enable_analyzer=True, enable_match=True)
    index = client.prepare_index_params()
    for name, (kind, params, _, _) in VECTORS.items():
        schema.add_field(name, kind, nullable=True, **({} if name == "sparse" else {"dim": DIM}))
        index.add_index(name, **params)
    client.create_collection(NAME, schema=schema, index_params=index, consistency_level="Strong")
    client.insert(NAME, [row(n) for n in range(ROWS)])
    yield client
    client.drop_collection(NAME)
    client.close()


def check(client: MilvusClient) -> None:
    def ids(filter_: str) -> list[int]:
        return sorted(r["id"] for r in client.query(NAME, filter_, limit=ROWS))

    for name, (_, _, value, has) in VECTORS.items():
        assert ids(f"{name} is null") == live(lambda n, has=has: not has(n)), name
        for rows, filter_ in ((ROWS, ""), (100, "id < 100")):
            (hits,) = client.search(
                NAME,
                [value(live(has)[0] if live(has) else 0)],
                anns_field=name,
                limit=ROWS,
                filter=filter_,
                search_params={"params": {"nprobe": 4}},
            )
            found = sorted(hit["id"] for hit in hits)
            # A sparse search finds only rows with an index in common, and here all have one.
            assert found == live(has, rows), (name, filter_)
    assert ids("t > ISO '2025-01-20T00:00:00Z'") == live(lambda n: n % 5 > 0 and n % 28 >= 20)
    left = "POLYGON ((-1 -1, 2.5 -1, 2.5 100, -1 100, -1 -1))"
    assert ids(f"st_within(place, '{left}')") == live(lambda n: n % 4 > 0 and n % 10 < 3)
    assert ids('text_match(body, "13 17 18")') == live(lambda n: n in (13, 17))
    for got in client.query(NAME, "id < 30", output_fields=["*"]):
        given = row(got["id"])
        for name in ("id", "t", "place", "body", "sparse"):
            assert (dict(got[name]) if isinstance(given[name], dict) else got[name]) == given[name]
        for name in VECTORS:
            assert (got[name] is None) == (given[name] is None), name
        if given["floats"] is not None:
            assert np.array_equal(np.asarray(got["floats"], np.float32), FLOATS[got["id"]])


def test_growing_indexed_and_changed(client: MilvusClient) -> None:
    check(client)
    client.flush(NAME)
    until(lambda: _is_indexed(client), DEADLINE_S, "the segments are indexed")
    check(client)
    client.release_collection(NAME)
    client.load_collection(NAME)
    check(client)
    client.upsert(NAME, [row(0) | {"floats": VECTORS["floats"][2](0)}, row(1) | {"floats": None}])
    (hits,) = client.search(NAME, [FLOATS[0].tolist()], anns_field="floats", limit=ROWS)
    assert hits[0]["id"] == 0
    assert 1 not in {hit["id"] for hit in hits}
    client.delete(NAME, filter="floats is null")
    assert client.query(NAME, "floats is null") == []
    client.upsert(NAME, [row(n) for n in range(ROWS)])
    check(client)


def _is_indexed(client: MilvusClient) -> bool:
    segments = client.list_loaded_segments(NAME)
    return bool(segments) and all(s.state_name == "Sealed" and s.index_name for s in segments)


def _output_of_example(name: str, shared: Server) -> list[str]:
    program = Path(__file__).parents[2] / "examples" / name
    command = [sys.executable, str(program), shared.uri]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    return ran.stdout.splitlines()


def test_the_example_of_several_vectors(shared: Server) -> None:
    lines = _output_of_example("products.py", shared)
    assert lines[0] == "2000 products; wanted: a five, bold, slanted"
    by_both, by_features, by_name = lines[3:8], lines[10:15], lines[17:22]
    assert [line.split()[1] for line in by_both[:3]] == ["five"] * 3
    assert all("thin" in line and float(line.split()[2]) < 12 for line in by_both)
    assert "five" in {line.split()[1] for line in by_features}
    assert len({line.split()[1] for line in by_name}) == 5


def test_the_example_of_places_and_times(shared: Server) -> None:
    assert _output_of_example("places_and_times.py", shared) == [
        "like jazz, within 1 km, in the first week of June:",
        "  2025-06-02T21:30:00+02:00  jazz trio",
        "  2025-06-02T19:00:00+02:00  big band",
        "  2025-06-01T20:00:00+02:00  organ recital",
        "in the park, doors (an hour before) open from 20:00 in London on June 2 or later:",
        "  2025-07-09T18:00:00+01:00  jazz choir",
        "without a vector:",
        "  to be announced: None, None",
    ]
