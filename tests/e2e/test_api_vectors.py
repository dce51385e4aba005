"""Ten vector fields of every type in one collection, sparse ones among them, through the client."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import Server, until
from pymilvus import BulkInsertState, DataType, MilvusClient, MilvusException, connections, utility

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

NAME, ROWS, DIM, DEADLINE_S = "vectors", 600, 8, 120.0
RNG = np.random.default_rng(6)
FLOATS = RNG.normal(size=(ROWS, DIM)).astype(np.float32)
SIGNED = RNG.integers(-128, 128, (ROWS, DIM)).astype(np.int8)
SPARSE = [
    {int(t): float(np.float32(v)) for t, v in zip(RNG.integers(0, 60, 6), RNG.random(6), strict=True)}
    for _ in range(ROWS)
]
FIELDS: dict[str, tuple[DataType, str, str, Any]] = {
    "floats": (DataType.FLOAT_VECTOR, "DISKANN", "L2", FLOATS),
    "floats_ip": (DataType.FLOAT_VECTOR, "IVF_FLAT", "IP", FLOATS),
    "bits": (DataType.BINARY_VECTOR, "BIN_FLAT", "HAMMING", [row.tobytes() for row in SIGNED[:, :1]]),
    "half": (DataType.FLOAT16_VECTOR, "FLAT", "COSINE", list(FLOATS.astype(np.float16))),
    "signed": (DataType.INT8_VECTOR, "HNSW", "L2", list(SIGNED)),
    "signed_ip": (DataType.INT8_VECTOR, "HNSW", "IP", list(SIGNED)),
    "signed_cos": (DataType.INT8_VECTOR, "AUTOINDEX", "COSINE", list(SIGNED)),
    "sparse": (DataType.SPARSE_FLOAT_VECTOR, "SPARSE_INVERTED_INDEX", "IP", SPARSE),
    "wand": (DataType.SPARSE_FLOAT_VECTOR, "SPARSE_WAND", "IP", SPARSE),
    "auto": (DataType.SPARSE_FLOAT_VECTOR, "AUTOINDEX", "IP", SPARSE),
}
EXACT = ("FLAT", "BIN_FLAT", "IVF_FLAT", "SPARSE_INVERTED_INDEX", "SPARSE_WAND")
EXHAUSTIVE = {"params": {"nprobe": 128, "ef": ROWS, "search_list": ROWS}}
"""All lists of an inverted file; a graph's search keeps as many candidates as there are rows."""
SEARCHED = [name for name in FIELDS if name not in ("bits", "half")]
"""The other two have pages of their own (`test_api_exact`, `test_api_half`)."""


def exact(name: str, query: Any) -> np.ndarray:
    """The score of every row; larger is better."""
    data_type, _, metric, _ = FIELDS[name]
    if data_type is DataType.SPARSE_FLOAT_VECTOR:
        return np.array([sum(v * row[t] for t, v in query.items() if t in row) for row in SPARSE])
    rows = (SIGNED if data_type is DataType.INT8_VECTOR else FLOATS).astype(float)
    sought = np.asarray(query, dtype=float)
    if metric == "L2":
        return -((rows - sought) ** 2).sum(axis=1)
    if metric == "COSINE":
        return rows @ sought / np.linalg.norm(rows, axis=1) / np.linalg.norm(sought)
    return rows @ sought


def check(client: MilvusClient, name: str, visible: np.ndarray, **options: Any) -> None:
    """The ten best of the visible rows, by their keys and scores. A graph may miss one of them."""
    data = FIELDS[name][3]
    queries = [data[n] for n in (5, 6, 7)]
    options = {"output_fields": [name], "search_params": EXHAUSTIVE, **options}
    found = client.search(NAME, queries, anns_field=name, limit=10, consistency_level="Strong", **options)
    for query, hits in zip(queries, found, strict=True):
        scores = exact(name, query)
        best = np.sort(scores[visible])[::-1]
        best = best[best != 0][:10] if isinstance(query, dict) else best[:10]
        given = np.array([hit["distance"] for hit in hits]) * (-1 if FIELDS[name][2] == "L2" else 1)
        assert len(given) == len(best), name
        assert np.all(np.diff(given) <= 0), name
        if FIELDS[name][1] in EXACT:
            assert np.allclose(given, best, atol=1e-3, rtol=1e-4), name
        else:
            assert np.count_nonzero(given >= best[-1] - 1e-3) >= len(best) - 1, name
        assert np.allclose([scores[hit["key"]] for hit in hits], given, atol=1e-3, rtol=1e-4), name
        assert all(visible[hit["key"]] for hit in hits)
        for hit in hits:
            assert same(hit["entity"][name], data[hit["key"]]), name


def same(given: Any, sent: Any) -> bool:
    """A sparse vector is a dictionary, one of bytes comes as bytes, alone or in a list of one."""
    if isinstance(sent, dict):
        return bool(given == sent)
    if np.asarray(sent).dtype == np.int8:
        given = given[0] if isinstance(given, list) and isinstance(given[0], bytes) else given
        return bytes(given) == np.asarray(sent).tobytes()
    return bool(np.allclose(given, sent))


@pytest.fixture(scope="module")
def filled(shared: Server) -> Iterator[MilvusClient]:
    client = MilvusClient(shared.uri)
    schema = client.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("n", DataType.INT64)
    for name, (data_type, *_) in FIELDS.items():
        dim = {} if data_type is DataType.SPARSE_FLOAT_VECTOR else {"dim": DIM}
        schema.add_field(name, data_type, **dim)
    client.create_collection(NAME, schema=schema)
    client.insert(NAME, [{"key": n, "n": n % 10} | {f: FIELDS[f][3][n] for f in FIELDS} for n in range(ROWS)])
    yield client
    client.drop_collection(NAME)
    client.close()


def index(client: MilvusClient, name: str) -> None:
    params = client.prepare_index_params()
    params.add_index(name, index_type=FIELDS[name][1], metric_type=FIELDS[name][2])
    client.create_index(NAME, params)


@pytest.fixture(scope="module")
def loaded(filled: MilvusClient) -> MilvusClient:
    names = list(FIELDS)
    for number, name in enumerate(names):
        lacking = " ".join(names[number:])
        with pytest.raises(
            MilvusException, match=rf"there is no vector index on field: \[{lacking}\]"
        ) as refused:
            filled.load_collection(NAME)
        assert refused.value.code == (1100 if number else 700), "without any index, none is found"
        index(filled, name)
    filled.load_collection(NAME)
    return filled


@pytest.fixture(scope="module")
def sealed(loaded: MilvusClient) -> MilvusClient:
    loaded.flush(NAME)

    def is_indexed() -> bool:
        segments = loaded.list_loaded_segments(NAME)
        return bool(segments) and all(s.state_name == "Sealed" and s.index_name for s in segments)

    until(is_indexed, DEADLINE_S, "every segment is indexed")
    return loaded


EVERY = np.ones(ROWS, dtype=bool)
SOME = np.arange(ROWS) % 10 == 3


def check_all(client: MilvusClient) -> None:
    for name in SEARCHED:
        check(client, name, EVERY)
        check(client, name, SOME, filter="n == 3")
    scores = np.sort(exact("wand", SPARSE[5]))[::-1]
    params = {"params": {"radius": float(scores[30]), "range_filter": float(scores[10])}}
    (hits,) = client.search(NAME, [SPARSE[5]], anns_field="wand", limit=100, search_params=params)
    assert np.allclose([hit["distance"] for hit in hits], scores[10:30], atol=1e-5)
    dropped = {"params": {"drop_ratio_search": 0.2}}
    (hits,) = client.search(NAME, [SPARSE[5]], anns_field="sparse", limit=1, search_params=dropped)
    assert hits[0]["distance"] == pytest.approx(float(scores[0]))
    with pytest.raises(MilvusException, match="multiple anns_fields exist"):
        client.search(NAME, [SPARSE[5]], limit=1)
    with pytest.raises(MilvusException, match="vector type must be the same"):
        client.search(NAME, [SPARSE[5]], anns_field="floats", limit=1)
    rows = client.query(NAME, ids=[7, 300], output_fields=list(FIELDS))
    for row in rows:
        for name in SEARCHED:
            assert same(row[name], FIELDS[name][3][row["key"]]), name


def test_growing_rows(loaded: MilvusClient) -> None:
    check_all(loaded)


def test_indexed_rows(sealed: MilvusClient) -> None:
    check_all(sealed)
    assert sorted(sealed.list_indexes(NAME)) == sorted(FIELDS)
    described = sealed.describe_index(NAME, "wand")
    assert (described["index_type"], described["metric_type"]) == ("SPARSE_WAND", "IP")
    fields = {field["name"]: field for field in sealed.describe_collection(NAME)["fields"]}
    assert fields["wand"]["type"] is DataType.SPARSE_FLOAT_VECTOR
    assert fields["wand"]["params"] == {}
    with pytest.raises(MilvusException, match="index cannot be dropped, collection is loaded"):
        sealed.drop_index(NAME, "wand")


def test_upserts_and_deletes(sealed: MilvusClient) -> None:
    new = {1_000_000: 5.0}
    row = {"key": 1000, "n": 77} | {name: FIELDS[name][3][0] for name in FIELDS} | {"wand": new, "auto": {}}
    sealed.upsert(NAME, [row])
    options: dict[str, Any] = {"limit": 5, "consistency_level": "Strong"}
    (hits,) = sealed.search(NAME, [new], anns_field="wand", **options)
    assert [(hit["key"], hit["distance"]) for hit in hits] == [(1000, 25.0)]
    sealed.upsert(NAME, [row | {"wand": {1_000_000: 1.0}}])
    (hits,) = sealed.search(NAME, [new], anns_field="wand", output_fields=["wand", "auto"], **options)
    assert [(hit["key"], hit["distance"]) for hit in hits] == [(1000, 5.0)]
    assert (hits[0]["entity"]["wand"], hits[0]["entity"]["auto"]) == ({1_000_000: 1.0}, {})
    sealed.delete(NAME, ids=[1000])
    assert sealed.search(NAME, [new], anns_field="wand", **options) == [[]]


def test_imported_rows(shared: Server) -> None:
    client = MilvusClient(shared.uri)
    schema = client.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("v", DataType.SPARSE_FLOAT_VECTOR)
    params = client.prepare_index_params()
    params.add_index("v", index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
    name = "imported_sparse"
    client.create_collection(name, schema=schema, index_params=params)
    structs = [{"indices": list(row), "values": list(row.values())} for row in SPARSE]
    kind = pa.struct([("indices", pa.list_(pa.uint32())), ("values", pa.list_(pa.float32()))])
    table = pa.table({"key": np.arange(ROWS), "v": pa.array(structs, kind)})
    pq.write_table(table, shared.data_dir / "import" / f"{name}.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the client will drop these verbs one day
        connections.connect(uri=shared.uri, alias=shared.uri)
        task = utility.do_bulk_insert(name, [f"{name}.parquet"], using=shared.uri)
        ended = (BulkInsertState.ImportCompleted, BulkInsertState.ImportFailed)
        state = utility.get_bulk_insert_state
        until(lambda: state(task, using=shared.uri).state in ended, DEADLINE_S, "the import ends")
        assert state(task, using=shared.uri).state == BulkInsertState.ImportCompleted
    rows = client.query(name, ids=[7], output_fields=["v"], consistency_level="Strong")
    assert rows[0]["v"] == SPARSE[7]
    client.drop_collection(name)
    client.close()
