"""Databases, collections, aliases, partitions, loads and indexes through `MilvusClient` and the ORM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from harness import Server, until
from pymilvus import (
    Collection,
    CollectionSchema,
    DataType,
    FieldSchema,
    MilvusClient,
    Partition,
    connections,
    utility,
)
from pymilvus.client.types import LoadState, ResourceGroupConfig
from pymilvus.exceptions import MilvusException

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.jvm,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]


def create(client: MilvusClient, name: str = "books", *, load: bool = True) -> None:
    schema = client.create_schema(description="words")
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("n", DataType.INT32, description="a number")
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=2)
    params = client.prepare_index_params()
    params.add_index("v", index_type="HNSW", metric_type="L2", params={"M": 8, "efConstruction": 64})
    client.create_collection(
        name, schema=schema, index_params=params if load else None, consistency_level="Strong", num_shards=2
    )


def rows(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"key": n, "n": n, "v": [float(n), 0.0]} for n in range(first, first + count)]


def count(client: MilvusClient, name: str = "books", **options: Any) -> int:
    return int(client.query(name, output_fields=["count(*)"], **options)[0]["count(*)"])


def test_databases_keep_their_collections_apart(client: MilvusClient) -> None:
    client.create_database("other")
    create(client)
    client.insert("books", rows(5))
    client.use_database("other")
    try:
        assert client.list_collections() == []
        create(client)
        client.insert("books", rows(3))
        assert count(client) == 3
        client.use_database("default")
        assert count(client) == 5
        assert sorted(client.list_databases()) == ["default", "other"]
        assert client.describe_database("other")["name"] == "other"
        with pytest.raises(MilvusException, match="not empty"):
            client.drop_database("other")
    finally:
        client.use_database("other")
        client.drop_collection("books")
        client.use_database("default")
        client.drop_database("other")
    assert client.list_databases() == ["default"]
    assert count(client) == 5


def test_a_collection_is_described_as_it_was_made(client: MilvusClient) -> None:
    create(client)
    described = client.describe_collection("books")
    assert described["description"] == "words"
    assert described["num_shards"] == 2
    assert described["consistency_level"] == 0
    assert described["auto_id"] is False
    assert described["enable_dynamic_field"] is False
    fields = [(f["name"], f["type"], f["params"], f["description"]) for f in described["fields"]]
    assert fields == [
        ("key", DataType.INT64, {}, ""),
        ("n", DataType.INT32, {}, "a number"),
        ("v", DataType.FLOAT_VECTOR, {"dim": 2}, ""),
    ]
    assert described["fields"][0]["is_primary"] is True


def test_a_renamed_collection_keeps_its_rows(client: MilvusClient) -> None:
    create(client)
    client.insert("books", rows(4))
    client.rename_collection("books", "novels")
    assert client.list_collections() == ["novels"]
    assert not client.has_collection("books")
    assert count(client, "novels") == 4


def test_a_dropped_collection_is_gone_and_its_name_is_free(client: MilvusClient) -> None:
    create(client)
    client.insert("books", rows(4))
    client.flush("books")
    client.drop_collection("books")
    assert not client.has_collection("books")
    with pytest.raises(MilvusException) as error:
        client.query("books", filter="key >= 0")
    assert error.value.code == 100
    create(client)
    assert count(client) == 0
    assert client.get_collection_stats("books")["row_count"] == 0


def test_an_alias_stands_for_its_collection(client: MilvusClient) -> None:
    create(client)
    create(client, "novels")
    client.insert("books", rows(2))
    client.insert("novels", rows(3))
    client.create_alias("books", "current")
    assert count(client, "current") == 2
    assert client.describe_alias("current")["collection_name"] == "books"
    client.alter_alias("novels", "current")
    assert count(client, "current") == 3
    assert client.list_aliases("novels")["aliases"] == ["current"]
    assert client.list_aliases("books")["aliases"] == []
    client.insert("current", rows(1, first=10))
    client.drop_alias("current")
    assert not client.has_collection("current")
    assert count(client, "novels") == 4


def test_partitions(client: MilvusClient) -> None:
    create(client)
    client.create_partition("books", "old")
    client.insert("books", rows(5))
    client.insert("books", rows(3, first=100), partition_name="old")
    assert client.list_partitions("books") == ["_default", "old"]
    assert client.has_partition("books", "old")
    assert count(client, partition_names=["old"]) == 3
    client.flush("books")
    assert client.get_partition_stats("books", "old")["row_count"] == 3
    with pytest.raises(MilvusException, match="partition cannot be dropped"):
        client.drop_partition("books", "old")
    client.release_partitions("books", ["old"])
    with pytest.raises(MilvusException, match="partition not loaded"):
        count(client, partition_names=["old"])
    assert count(client) == 5
    client.load_partitions("books", ["old"])
    assert count(client) == 8
    client.release_partitions("books", ["old"])
    client.drop_partition("books", "old")
    assert client.list_partitions("books") == ["_default"]
    assert client.get_collection_stats("books")["row_count"] == 5


def test_load_and_release_with_progress_and_state(client: MilvusClient) -> None:
    create(client, load=False)
    client.insert("books", rows(300))
    assert client.get_load_state("books")["state"] == LoadState.NotLoad
    with pytest.raises(MilvusException, match="index not found"):
        client.load_collection("books")
    params = client.prepare_index_params()
    params.add_index("v", index_type="FLAT", metric_type="L2")
    client.create_index("books", params)
    client.flush("books")
    with pytest.raises(MilvusException, match="2 replicas need as many query nodes, 1 are alive"):
        client.load_collection("books", replica_number=2)
    assert client.get_load_state("books")["state"] == LoadState.NotLoad
    client.load_collection("books")
    assert client.get_load_state("books")["state"] == LoadState.Loaded
    assert count(client) == 300, "loaded means: at least what was there when the load began"
    client.release_collection("books")
    assert client.get_load_state("books")["state"] == LoadState.NotLoad
    with pytest.raises(MilvusException) as error:
        count(client)
    assert error.value.code == 101
    assert client.get_load_state("no_such")["state"] == LoadState.NotExist


def test_an_index_is_built_described_and_dropped(client: MilvusClient) -> None:
    create(client)
    client.insert("books", rows(900))
    client.flush("books")
    until(lambda: client.describe_index("books", "v")["state"] == "Finished", 60, "it is built")
    described = client.describe_index("books", "v")
    assert {k: described[k] for k in ("index_type", "metric_type", "M", "efConstruction")} == {
        "index_type": "HNSW",
        "metric_type": "L2",
        "M": "8",
        "efConstruction": "64",
    }
    assert (described["total_rows"], described["indexed_rows"], described["pending_index_rows"]) == (
        900,
        900,
        0,
    )
    with pytest.raises(MilvusException, match="loaded"):
        client.drop_index("books", "v")
    client.release_collection("books")
    client.drop_index("books", "v")
    assert client.list_indexes("books") == []


def test_what_a_drop_marks_and_frees(shared: Server, client: MilvusClient) -> None:
    create(client)
    client.insert("books", rows(500))
    client.flush("books")
    client.insert("books", rows(500, first=500))
    assert count(client) == 1000
    client.drop_collection("books")
    names = [c["name"] for c in shared.status()["collections"]]
    assert "books" not in names


@pytest.fixture
def orm(shared: Server, client: MilvusClient) -> Iterator[None]:
    connections.connect("default", uri=shared.uri)
    yield
    connections.disconnect("default")


def test_the_orm_from_end_to_end(orm: None) -> None:
    fields = [
        FieldSchema("key", DataType.INT64, is_primary=True),
        FieldSchema("n", DataType.INT32),
        FieldSchema("v", DataType.FLOAT_VECTOR, dim=2),
    ]
    books = Collection("books", CollectionSchema(fields), consistency_level="Strong")
    assert books.is_empty
    inserted = books.insert([[1, 2, 3], [10, 20, 30], [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]])
    assert (inserted.insert_count, list(inserted.primary_keys)) == (3, [1, 2, 3])
    books.create_index("v", {"index_type": "FLAT", "metric_type": "L2", "params": {}})
    books.load()
    assert utility.loading_progress("books") == {"loading_progress": "100%"}
    (hits,) = books.search([[2.1, 0.0]], "v", {"metric_type": "L2"}, 2, output_fields=["n"])
    assert [(hit.id, hit.entity.get("n")) for hit in hits] == [(2, 20), (3, 30)]
    part = Partition(books, "part")
    part.insert([[4], [40], [[4.0, 0.0]]])
    assert [row["key"] for row in books.query("n > 15", partition_names=["part"])] == [4]
    books.delete("key == 1")
    books.flush()
    utility.wait_for_index_building_complete("books")
    assert utility.index_building_progress("books")["pending_index_rows"] == 0
    assert books.num_entities == 4
    assert sum(s.num_rows for s in utility.get_query_segment_info("books")) == 4
    assert [row["key"] for row in books.query("key >= 0")] == [2, 3, 4]
    books.release()
    books.drop_index()
    utility.drop_collection("books")
    assert utility.list_collections() == []


def test_what_is_loaded_in_a_resource_group(client: MilvusClient, orm: None) -> None:
    default = "__default_resource_group"
    create(client, load=False)
    client.insert("books", rows(3))
    books = Collection("books")
    books.create_index("v", {"index_type": "FLAT", "metric_type": "L2", "params": {}})
    utility.create_resource_group("rg")
    try:
        utility.create_resource_group("rg")
        one = {"node_num": 1}
        with pytest.raises(MilvusException, match="already exist, but create with different config"):
            utility.create_resource_group("rg", config=ResourceGroupConfig(requests=one, limits=one))
        assert sorted(utility.list_resource_groups()) == [default, "rg"]
        with pytest.raises(MilvusException, match=r"nodes not enough.* in resource group rg"):
            books.load(_resource_groups=["rg"])
        utility.transfer_node(default, "rg", 1)
        books.load(_resource_groups=["rg"])
        assert count(client) == 3
        described = utility.describe_resource_group("rg")
        assert (described.capacity, described.num_available_node, described.num_loaded_replica) == (
            1,
            1,
            {"books": 1},
        )
        (replica,) = books.get_replicas().groups
        assert (replica.resource_group, dict(replica.num_outbound_node)) == ("rg", {})
        with pytest.raises(MilvusException, match="some replicas still loaded"):
            utility.drop_resource_group("rg")
        books.release()
    finally:
        if utility.describe_resource_group("rg").num_available_node:
            utility.transfer_node("rg", default, 1)
        books.release()
        utility.drop_resource_group("rg")
    assert utility.list_resource_groups() == [default]
