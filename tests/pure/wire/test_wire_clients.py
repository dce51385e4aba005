"""Ordinary programs of the real client, both its interfaces, against the wire over fake verbs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pymilvus
import pytest
from fake_verbs import FakeVerbs
from pymilvus import (
    AnnSearchRequest,
    Collection,
    CollectionSchema,
    DataType,
    FieldSchema,
    Function,
    FunctionType,
    MilvusClient,
    RRFRanker,
    WeightedRanker,
    connections,
    db,
    utility,
)

from elanus.core.consistency import ConsistencyLevel
from elanus.core.rankers import Decay

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

DIM = 8
VECTORS = np.random.default_rng(7).random((20, DIM), dtype=np.float32)
L2 = {"metric_type": "L2", "params": {"ef": 32}}
SCALARS = ("id", "b", "i8", "i16", "i32", "i64", "f", "d", "s", "j")


@pytest.fixture
def client(port: int) -> Iterator[MilvusClient]:
    made = MilvusClient(uri=f"http://127.0.0.1:{port}")
    yield made
    made.close()


@pytest.fixture
def orm(port: int) -> Iterator[str]:
    connections.connect("wire", host="127.0.0.1", port=str(port))
    yield "wire"
    connections.disconnect("wire")


def rows() -> list[dict[str, object]]:
    return [
        {
            "id": i,
            "b": bool(i % 2),
            "i8": i - 5,
            "i16": i * 100,
            "i32": i * 100_000,
            "i64": i << 40,
            "f": i / 2,
            "d": i / 4,
            "s": f"s{i}",
            "j": {"k": i, "deep": [1, {"x": None}]},
            "vector": VECTORS[i].tolist(),
        }
        for i in range(20)
    ]


@pytest.fixture
def books(orm: str) -> Collection:
    """Every scalar type, dynamic fields, 20 rows, loaded."""
    fields = [
        FieldSchema("id", DataType.INT64, is_primary=True),
        FieldSchema("b", DataType.BOOL),
        FieldSchema("i8", DataType.INT8),
        FieldSchema("i16", DataType.INT16),
        FieldSchema("i32", DataType.INT32),
        FieldSchema("i64", DataType.INT64),
        FieldSchema("f", DataType.FLOAT),
        FieldSchema("d", DataType.DOUBLE),
        FieldSchema("s", DataType.VARCHAR, max_length=20),
        FieldSchema("j", DataType.JSON),
        FieldSchema("vector", DataType.FLOAT_VECTOR, dim=DIM),
    ]
    schema = CollectionSchema(fields, "about books", enable_dynamic_field=True)
    made = Collection("books", schema, using=orm, consistency_level="Strong")
    dynamic = [{**row, "color": f"c{i}", "dyn": i} for i, row in enumerate(rows())]
    assert made.insert(dynamic).insert_count == 20
    made.create_index("vector", {"index_type": "HNSW", "metric_type": "L2", "params": {"M": 8}}, sync=False)
    made.load()
    return made


# the object-relational interface


def test_every_type_comes_back_from_a_query(books: Collection) -> None:
    (got,) = books.query("id in [3]", output_fields=["*"])
    expected = rows()[3]
    assert {name: got[name] for name in SCALARS} == {name: expected[name] for name in SCALARS}
    assert np.array_equal(np.array(got["vector"], np.float32), VECTORS[3])
    assert (got["color"], got["dyn"]) == ("c3", 3)


def test_every_type_comes_back_from_a_search(books: Collection) -> None:
    hits = books.search(VECTORS[[4, 9]], "vector", L2, limit=3, output_fields=["*"])
    assert [hits[0][0].id, hits[1][0].id] == [4, 9]
    assert hits[0][0].distance == 0
    got, expected = hits[1][0].entity, rows()[9]
    assert {name: got.get(name) for name in SCALARS} == {name: expected[name] for name in SCALARS}
    assert np.array_equal(np.array(got.get("vector"), np.float32), VECTORS[9])
    assert got.get("color") == "c9"


def test_only_the_dynamic_keys_that_were_named_come_back(books: Collection) -> None:
    (hits,) = books.search(VECTORS[:1], "vector", L2, limit=2, output_fields=["dyn", "s"])
    assert hits[0].fields == {"s": "s0", "dyn": 0}
    (row,) = books.query("id == 5", output_fields=["color"])
    assert row == {"id": 5, "color": "c5"}


def test_a_search_is_asked_as_the_program_said(books: Collection, verbs: FakeVerbs) -> None:
    (hits,) = books.search(
        VECTORS[:1],
        "vector",
        {**L2, "offset": 1},
        limit=2,
        expr="id > 5",
        partition_names=["_default"],
        round_decimal=2,
        consistency_level="Bounded",
    )
    assert len(hits) == 2
    search = verbs.searches[-1]
    asked = search.template
    assert (asked.offset, asked.limit, asked.filter, asked.round_decimal) == (1, 2, "id > 5", 2)
    assert (asked.partitions, asked.params, asked.metric_type) == (("_default",), {"ef": 32}, "L2")
    assert search.consistency.level is ConsistencyLevel.BOUNDED


def test_a_session_read_carries_the_last_write(books: Collection, verbs: FakeVerbs) -> None:
    written = books.delete("id in [19]")
    books.query("id in [1]", consistency_level="Session")
    asked = verbs.queries[-1].consistency
    assert (asked.level, asked.guarantee_ts) == (ConsistencyLevel.SESSION, written.timestamp)


def test_columns_are_inserted_and_upserted_like_rows(books: Collection) -> None:
    columns = [[row[name] for row in rows()] for name in (*SCALARS, "vector")]
    columns[8] = [f"new{i}" for i in range(20)]
    answer = books.upsert(columns)
    assert (answer.upsert_count, list(answer.primary_keys)) == (20, list(range(20)))
    assert books.query("id == 7", output_fields=["s"])[0]["s"] == "new7"


def test_a_collection_describes_itself(books: Collection, orm: str) -> None:
    assert books.describe()["collection_name"] == "books"
    assert (books.num_entities, books.description, books.num_shards) == (20, "about books", 1)
    assert [p.name for p in books.partitions] == ["_default"]
    assert books.index().params["index_type"] == "HNSW"
    assert utility.index_building_progress("books", using=orm)["indexed_rows"] == 20
    assert utility.loading_progress("books", using=orm) == {"loading_progress": "100%"}
    assert utility.get_query_segment_info("books", using=orm)[0].segmentID == 7
    assert Collection("books", using=orm).schema == books.schema


def test_other_calls_of_programs(books: Collection, orm: str) -> None:
    books.flush()
    utility.create_alias("books", "shelf", using=orm)
    assert utility.list_aliases("books", using=orm) == ["shelf"]
    utility.drop_alias("shelf", using=orm)
    books.create_partition("new")
    assert books.has_partition("new")
    books.drop_partition("new")
    utility.rename_collection("books", "tomes", using=orm)
    assert utility.list_collections(using=orm) == ["tomes"]
    utility.flush_all(using=orm)
    db.create_database("library", using=orm)
    assert db.list_database(using=orm) == ["default", "library"]


def test_the_teardown_of_a_program(books: Collection, orm: str) -> None:
    books.release()
    books.drop_index()
    utility.drop_collection("books", using=orm)
    assert utility.list_resource_groups(using=orm) == ["__default_resource_group"]
    assert utility.list_usernames(using=orm) == ["root"]
    roles = utility.list_roles(include_user_info=True, using=orm).groups
    assert [(role.role_name, role.users) for role in roles] == [("admin", ()), ("public", ())]
    assert utility.get_server_version(using=orm).startswith("v2.6.")


def test_string_keys_and_binary_vectors(orm: str) -> None:
    fields = [
        FieldSchema("k", DataType.VARCHAR, is_primary=True, max_length=10),
        FieldSchema("bits", DataType.BINARY_VECTOR, dim=16),
    ]
    made = Collection("bits", CollectionSchema(fields), using=orm)
    assert list(made.insert([["a", "b"], [b"ab", b"zz"]]).primary_keys) == ["a", "b"]
    made.create_index("bits", {"index_type": "BIN_FLAT", "metric_type": "HAMMING", "params": {}}, sync=False)
    made.load()
    hits = made.search([b"zz"], "bits", {"metric_type": "HAMMING", "params": {}}, 2, output_fields=["bits"])[
        0
    ]
    assert (hits.ids, hits[0].entity.get("bits")) == (["b", "a"], b"zz")


# MilvusClient


def nullable_schema(client: MilvusClient) -> pymilvus.CollectionSchema:
    schema = client.create_schema(auto_id=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("age", DataType.INT32, nullable=True)
    schema.add_field("name", DataType.VARCHAR, max_length=20, default_value="anon")
    schema.add_field("score", DataType.FLOAT, nullable=True, default_value=1.5)
    schema.add_field("extra", DataType.JSON, nullable=True)
    schema.add_field("flag", DataType.BOOL, nullable=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=DIM)
    return schema


def test_nulls_and_defaults_make_the_round_trip(client: MilvusClient) -> None:
    index = client.prepare_index_params("vector", index_type="FLAT", metric_type="L2")
    client.create_collection("people", schema=nullable_schema(client), index_params=index)
    vectors = VECTORS.tolist()
    full = {"id": 2, "age": 5, "name": "bob", "score": 2.5, "extra": {"x": 1}, "flag": True}
    client.insert(
        "people",
        [
            {"id": 1, "vector": vectors[0]},
            {**full, "vector": vectors[1]},
            {"id": 3, "vector": vectors[2], "age": None, "name": None},
        ],
    )
    empty = {"age": None, "name": "anon", "score": 1.5, "extra": None, "flag": None}
    named = ["id", *empty]
    got = [dict(row) for row in client.query("people", "id > 0", output_fields=named)]
    assert got == [{"id": 1, **empty}, full, {"id": 3, **empty}]
    (hits,) = client.search("people", vectors[1:2], limit=1, output_fields=named, anns_field="vector")
    assert dict(hits[0]["entity"]) == full


def test_the_quick_start(client: MilvusClient) -> None:
    client.create_collection("quick", DIM)
    inserted = client.insert("quick", [{"id": i, "vector": VECTORS[i].tolist(), "n": i} for i in range(9)])
    assert inserted["insert_count"] == 9
    (hits,) = client.search("quick", VECTORS[2:3].tolist(), limit=1, output_fields=["n"])
    assert (hits[0]["id"], hits[0]["entity"]["n"]) == (2, 2)
    assert [row["n"] for row in client.get("quick", ids=[3, 4])] == [3, 4]
    templated = client.query("quick", "id in {ids}", filter_params={"ids": [1, 2]})
    assert [row["id"] for row in templated] == [1, 2]
    assert client.delete("quick", ids=[1])["delete_count"] == 1
    assert client.upsert("quick", [{"id": 2, "vector": VECTORS[0].tolist()}])["upsert_count"] == 1
    assert client.query("quick", "", output_fields=["count(*)"])[0] == {"count(*)": 8}
    assert client.get_collection_stats("quick") == {"row_count": 8}
    assert client.describe_collection("quick")["enable_dynamic_field"] is True
    client.drop_collection("quick")
    assert client.has_collection("quick") is False


def test_a_client_with_an_old_schema_fetches_the_new_one(client: MilvusClient, port: int) -> None:
    client.create_collection("quick", DIM)
    client.insert("quick", [{"id": 1, "vector": [0.0] * DIM}])
    other = MilvusClient(uri=f"http://localhost:{port}")
    other.drop_collection("quick")
    other.create_collection("quick", 4)
    other.close()
    assert client.insert("quick", [{"id": 1, "vector": [0.0] * 4}])["insert_count"] == 1


def test_a_query_iterator_pins_its_pages_to_the_moment_of_its_first_request(
    client: MilvusClient, verbs: FakeVerbs
) -> None:
    client.create_collection("quick", DIM)
    client.insert("quick", [{"id": n, "vector": [0.0] * DIM} for n in (1, 2)])
    pages = client.query_iterator("quick", batch_size=2, filter="id > 0")
    assert [row["id"] for row in pages.next()] == [1, 2]
    pages.close()
    began, page = verbs.queries
    assert began.consistency.moment is None
    assert page.consistency.moment is not None
    assert page.collection_id == client.describe_collection("quick")["collection_id"]


def test_a_read_carries_its_clients_timeout(client: MilvusClient, verbs: FakeVerbs) -> None:
    client.create_collection("quick", DIM)
    client.query("quick", filter="id > 0", timeout=60)
    client.search("quick", [[0.0] * DIM], timeout=60)
    client.query("quick", filter="id > 0")
    (timed, free), (search,) = verbs.queries, verbs.searches
    assert timed.timeout_s is not None
    assert search.timeout_s is not None
    assert 30 < timed.timeout_s < 70
    assert 30 < search.timeout_s < 70
    assert free.timeout_s is None or free.timeout_s > 70


@pytest.mark.parametrize(
    ("verb", "text"),
    [(lambda c: c.add_file_resource("s", "quick"), "AddFileResource")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_built_says_so(client: MilvusClient, verb: object, text: str) -> None:
    client.create_collection("quick", DIM)
    with pytest.raises(pymilvus.MilvusException) as refusal:
        verb(client)  # type: ignore[operator]
    assert refusal.value.code == 1100
    assert text in refusal.value.message
    assert "not supported by this release" in refusal.value.message


def test_the_client_gets_fused_hits(client: MilvusClient, verbs: FakeVerbs) -> None:
    client.create_collection("quick", 4, metric_type="L2")
    client.insert("quick", [{"id": n, "vector": [float(n), 0.0, 0.0, 0.0], "n": n} for n in range(6)])
    requests = [AnnSearchRequest([[float(n), 0, 0, 0]], "vector", {}, 3) for n in (2, 3)]
    (hits,) = client.hybrid_search("quick", requests, RRFRanker(10), limit=2, output_fields=["n"])
    assert {hit["id"] for hit in hits} == {2, 3}
    assert [hit["entity"]["n"] for hit in hits] == [hit["id"] for hit in hits]
    decay = Function(
        name="near",
        input_field_names=["id"],
        function_type=FunctionType.RERANK,
        params={"reranker": "decay", "function": "gauss", "origin": 1, "scale": 2},
    )
    client.search("quick", [[0.0] * 4], limit=2, ranker=decay)
    assert verbs.searches[-1].template.ranker == Decay("id", "gauss", 1.0, 2.0)
    bad = WeightedRanker(1.0)
    bad._strategy = "best"
    with pytest.raises(pymilvus.MilvusException, match="unsupported rank type"):
        client.hybrid_search("quick", requests, bad, limit=2)
