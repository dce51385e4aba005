"""The RPCs of each family: calls of the verbs and answers, over a real channel."""

from __future__ import annotations

import msgspec
import pytest
from fake_verbs import FakeVerbs
from google.protobuf.message import Message
from wire_messages import (
    Call,
    float_vectors,
    key_message,
    pairs,
    scalar_data,
    schema_bytes,
    search_request,
    vector_message,
)

from elanus import __version__
from elanus.core.consistency import ConsistencyLevel
from elanus.core.schema import DataType
from elanus.core.timestamps import physical_ms
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2

L1 = common_pb2.SegmentLevel.Value("L1")
BOOKS = schema_bytes(key_message(), vector_message())


@pytest.fixture
def books(call: Call) -> None:
    """A loaded collection with two rows."""
    assert call("CreateCollection", collection_name="books", schema=BOOKS).code == 0
    assert insert(call).insert_cnt == 2
    index = pairs({"index_type": "FLAT", "metric_type": "L2"})
    assert call("CreateIndex", collection_name="books", field_name="vector", extra_params=index).code == 0
    assert call("LoadCollection", collection_name="books").code == 0


def insert(call: Call, rpc: str = "Insert", **more: object) -> Message:
    columns = [scalar_data("id", DataType.INT64, [1, 2]), float_vectors("vector", [[0] * 4, [1] * 4])]
    return call(rpc, collection_name="books", fields_data=columns, num_rows=2, **more)


# the server itself


def test_connecting_returns_the_version_and_checks_the_database(call: Call) -> None:
    answer = call("Connect")
    assert answer.server_info.build_tags == call("GetVersion").version
    assert answer.server_info.git_commit == f"elanus-{__version__}"
    assert answer.server_info.deploy_mode == "STANDALONE"
    assert answer.identifier != call("Connect").identifier
    refused = call("Connect", database="nowhere").status
    assert (refused.code, refused.reason) == (800, "database not found[database=nowhere]")


def test_programs_read_a_version_with_full_text_search_in_it(call: Call) -> None:
    version = call("GetVersion").version
    assert version.startswith("v")
    major, minor, _ = (int(part) for part in version[1:].split("."))
    assert (2, 5) <= (major, minor) < (3, 0)


def test_health_names_what_is_ill(call: Call, verbs: FakeVerbs) -> None:
    assert call("CheckHealth").isHealthy
    verbs.ill = "lost its lease"
    answer = call("CheckHealth")
    assert not answer.isHealthy
    assert list(answer.reasons) == ["querynode 3 is not healthy: lost its lease"]
    states = call("GetComponentStates")
    assert (states.state.role, states.state.state_code) == ("proxy", common_pb2.Healthy)
    assert [s.state_code for s in states.subcomponent_states] == [common_pb2.Healthy, common_pb2.Abnormal]


def test_metrics_show_the_topology(call: Call) -> None:
    answer = call("GetMetrics", request='{"metric_type":"system_info"}')
    nodes = msgspec.json.decode(answer.response)["nodes_info"]
    assert [node["infos"]["name"] for node in nodes] == ["proxy1", "querynode3"]
    assert call("GetMetrics", request='{"metric_type":"qps"}').status.code == 1100


def test_the_built_in_user_and_roles_are_listed(call: Call) -> None:
    assert list(call("ListCredUsers").usernames) == ["root"]
    roles = call("SelectRole", include_user_info=True).results
    assert [(found.role.name, list(found.users)) for found in roles] == [("admin", []), ("public", [])]
    users = call("SelectUser", include_role_info=True).results
    assert [(found.user.name, list(found.roles)) for found in users] == [("root", [])]
    assert [found.role.name for found in call("SelectRole", role={"name": "public"}).results] == ["public"]
    assert [found.user.name for found in call("SelectUser", user={"name": "root"}).results] == ["root"]
    assert not call("SelectRole", role={"name": "other"}).results
    assert not call("SelectUser", user={"name": "other"}).results
    for method, name in (("SelectRole", {"role": {"name": "1r"}}), ("SelectUser", {"user": {"name": ""}})):
        assert call(method, **name).status.code == 1100
    grants_of = {"role": {"name": "public"}, "object": {"name": "collection"}}
    assert "supported the object types" in call("SelectGrant", entity=grants_of).status.reason
    assert "grant privileges on collections" in call("CreateRowPolicy", collection_name="c").reason
    assert "give users roles" in call("AddUserTags", user_name="root").reason


def test_the_teardown_calls_find_the_default_group(call: Call) -> None:
    assert list(call("ListResourceGroups").resource_groups) == ["__default_resource_group"]
    group = call("DescribeResourceGroup", resource_group="__default_resource_group").resource_group
    assert (group.capacity, group.num_available_node) == (1_000_000, 2)
    assert "not found[rg=other]" in call("DescribeResourceGroup", resource_group="other").status.reason


@pytest.mark.usefixtures("books")
def test_nodes_and_replicas_are_transferred(call: Call, verbs: FakeVerbs) -> None:
    between = {"source_resource_group": "a", "target_resource_group": "b"}
    assert call("TransferNode", **between, num_node=2).code == 0
    assert call("TransferReplica", **between, collection_name="books", num_replica=1).code == 0
    assert verbs.transfers == [("a", "b", 2), ("default", "books", "a", "b", 1)]
    assert call("TransferReplica", **between, collection_name="1", num_replica=1).code == 1100


# databases


def test_the_database_is_the_requests_then_the_connections_then_the_default(
    call: Call, verbs: FakeVerbs
) -> None:
    for name in ("one", "two"):
        assert call("CreateDatabase", db_name=name, properties=pairs({"k": "v"})).code == 0
    call("CreateCollection", collection_name="books", schema=BOOKS, database="one")
    call("CreateCollection", collection_name="books", schema=BOOKS, database="one", db_name="two")
    call("CreateCollection", collection_name="books", schema=BOOKS)
    assert [created.database for created in verbs.created] == ["one", "two", "default"]
    assert call("DescribeCollection", collection_name="books", database="two").db_name == "two"


def test_databases_are_listed_described_and_altered(call: Call) -> None:
    call("CreateDatabase", db_name="one", properties=pairs({"a": "1", "b": "2"}))
    listed = call("ListDatabases")
    assert list(listed.db_names) == ["default", "one"]
    assert len(listed.db_ids) == len(listed.created_timestamp) == 2
    assert call("AlterDatabase", db_name="one", properties=pairs({"c": "3"}), delete_keys=["a"]).code == 0
    described = call("DescribeDatabase", db_name="one")
    assert {p.key: p.value for p in described.properties} == {"b": "2", "c": "3"}
    found = described.dbID
    assert call("AlterDatabase", db_name="one", db_id=str(found), properties=pairs({"d": "4"})).code == 0
    assert {p.key: p.value for p in call("DescribeDatabase", db_name="one").properties}["d"] == "4"
    assert "name the database" in call("AlterDatabase", db_id=str(found), properties=pairs({"d": "5"})).reason
    assert call("DropDatabase", db_name="one").code == 0
    assert list(call("ListDatabases").db_names) == ["default"]
    assert "the first character of a database name" in call("CreateDatabase", db_name="1 x").reason


# collections


def test_a_collection_is_created_as_asked(call: Call, verbs: FakeVerbs) -> None:
    answer = call(
        "CreateCollection",
        collection_name="books",
        schema=BOOKS,
        shards_num=3,
        consistency_level=int(ConsistencyLevel.SESSION),
        properties=pairs({"k": "v"}),
    )
    assert answer.code == 0
    (created,) = verbs.created
    assert (created.shards, created.consistency_level) == (3, ConsistencyLevel.SESSION)
    assert created.properties == {"k": "v"}
    call("CreateCollection", collection_name="books", schema=BOOKS)
    assert verbs.created[1].shards == 1


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"shards_num": 17}, "maximum shards's number should be limited to 16"),
        ({"shards_num": -1}, "shards_num must be in [1, 16]"),
        ({"consistency_level": 9}, "consistency level 9 does not exist"),
        ({"properties": [*pairs({"k": "v"}), *pairs({"k": "w"})]}, "parameter k is given twice"),
    ],
)
def test_a_bad_creation_is_refused(
    call: Call, verbs: FakeVerbs, fields: dict[str, object], text: str
) -> None:
    assert text in call("CreateCollection", collection_name="books", schema=BOOKS, **fields).reason
    assert verbs.created == []


def test_a_missing_collection_is_an_error_as_every_client_generation_expects(call: Call) -> None:
    status = call("DescribeCollection", collection_name="nope").status
    assert (status.code, status.error_code) == (100, common_pb2.UnexpectedError)
    assert status.reason == "can't find collection[database=default][collection=nope]"
    assert call("HasCollection", collection_name="nope").value is False
    elsewhere = call("GetCollectionStatistics", collection_name="nope").status
    assert (elsewhere.code, elsewhere.error_code) == (100, common_pb2.CollectionNotExists)


@pytest.mark.usefixtures("books")
def test_collections_are_described_by_name_alias_and_id(call: Call) -> None:
    assert call("CreateAlias", collection_name="books", alias="shelf").code == 0
    by_name = call("DescribeCollection", collection_name="books")
    by_alias = call("DescribeCollection", collection_name="shelf")
    by_id = call("DescribeCollection", collectionID=by_name.collectionID)
    assert by_alias.schema == by_id.schema == by_name.schema
    assert (by_alias.collection_name, list(by_alias.aliases)) == ("shelf", ["shelf"])
    assert by_id.collection_name == "books"
    assert "should not be empty" in call("DescribeCollection").status.reason
    assert "collection=5" in call("DescribeCollection", collectionID=5).status.reason


@pytest.mark.usefixtures("books")
def test_aliases_are_described_listed_moved_and_dropped(call: Call) -> None:
    call("CreateAlias", collection_name="books", alias="shelf")
    described = call("DescribeAlias", alias="shelf")
    assert (described.collection, described.alias, described.db_name) == ("books", "shelf", "default")
    assert list(call("ListAliases", collection_name="books").aliases) == ["shelf"]
    assert call("AlterAlias", collection_name="books", alias="shelf").code == 0
    assert call("DropAlias", alias="shelf").code == 0
    assert call("DescribeAlias", alias="shelf").status.code == 1600
    assert call("ListAliases", collection_name="1 book").status.code == 1100


@pytest.mark.parametrize("name", ["1 book", " ", "", "books!"])
def test_dropping_a_name_that_nothing_can_have_succeeds(call: Call, name: str) -> None:
    assert call("DropCollection", collection_name=name).code == 0
    assert call("DropAlias", alias=name).code == 0


@pytest.mark.usefixtures("books")
def test_collections_are_shown_all_or_loaded(call: Call) -> None:
    call(
        "CreateCollection",
        collection_name="other",
        schema=schema_bytes(key_message(), vector_message(), name="other"),
    )
    everything = call("ShowCollections")
    assert list(everything.collection_names) == ["books", "other"]
    assert list(everything.created_utc_timestamps) == [physical_ms(t) for t in everything.created_timestamps]
    assert not everything.inMemory_percentages
    loaded = call("ShowCollections", type=milvus_pb2.InMemory)
    assert list(loaded.collection_names) == ["books"]
    assert (list(loaded.inMemory_percentages), list(loaded.query_service_available)) == ([100], [True])
    unloaded = call("ShowCollections", type=milvus_pb2.InMemory, collection_names=["other"])
    assert unloaded.status.code == 101
    often = call("ShowCollections", type=milvus_pb2.InMemory, collection_names=["books"] * 3)
    assert list(often.collection_names) == ["books"]


@pytest.mark.usefixtures("books")
def test_collections_are_counted_renamed_altered_and_dropped(call: Call) -> None:
    stats = call("GetCollectionStatistics", collection_name="books").stats
    assert {s.key: s.value for s in stats} == {"row_count": "2"}
    changed = pairs({"mmap": "1"})
    assert call("AlterCollection", collection_name="books", properties=changed).code == 0
    assert call("RenameCollection", oldName="books", newName="tomes").code == 0
    described = call("DescribeCollection", collection_name="tomes")
    assert {p.key: p.value for p in described.properties} == {"mmap": "1"}
    assert call("DropCollection", collection_name="tomes").code == 0
    assert call("HasCollection", collection_name="tomes").value is False


# partitions and load


@pytest.mark.usefixtures("books")
def test_partitions_are_created_shown_loaded_and_dropped(call: Call, verbs: FakeVerbs) -> None:
    assert call("CreatePartition", collection_name="books", partition_name="1p").code == 0
    assert call("HasPartition", collection_name="books", partition_name="1p").value is True
    shown = call("ShowPartitions", collection_name="books")
    assert list(shown.partition_names) == ["_default", "1p"]
    assert len(shown.partitionIDs) == len(shown.created_utc_timestamps) == 2
    in_memory = call("ShowPartitions", collection_name="books", type=milvus_pb2.InMemory)
    assert (list(in_memory.partition_names), list(in_memory.inMemory_percentages)) == (["_default"], [100])
    often = call("ShowPartitions", collection_name="books", partition_names=["1p"] * 3)
    assert list(often.partition_names) == ["1p"]
    missing = call("ShowPartitions", collection_name="books", partition_names=["zz"]).status
    assert (missing.code, missing.reason) == (200, "partition not found[partition=zz]")
    assert call("LoadPartitions", collection_name="books", partition_names=["1p"]).code == 0
    assert verbs.loads[-1] == (("1p",), 0, False, ()), "the number of replicas is not given"
    stats = call("GetPartitionStatistics", collection_name="books", partition_name="_default").stats
    assert stats[0].value == "2"
    assert call("ReleasePartitions", collection_name="books", partition_names=["1p"]).code == 0
    assert call("DropPartition", collection_name="books", partition_name="1p").code == 0
    assert (
        "Invalid partition name: a b"
        in call("CreatePartition", collection_name="books", partition_name="a b").reason
    )


@pytest.mark.usefixtures("books")
def test_loading_is_started_followed_and_undone(call: Call, verbs: FakeVerbs) -> None:
    asked = {"replica_number": 2, "refresh": True, "resource_groups": ["__default_resource_group"]}
    assert call("LoadCollection", collection_name="books", **asked).code == 0
    assert verbs.loads[-1] == ((), 2, True, ("__default_resource_group",))
    progress = call("GetLoadingProgress", collection_name="books")
    assert (progress.progress, progress.refresh_progress) == (100, 100)
    assert call("GetLoadState", collection_name="books").state == common_pb2.LoadStateLoaded
    assert call("ReleaseCollection", collection_name="books").code == 0
    assert call("GetLoadState", collection_name="books").state == common_pb2.LoadStateNotLoad
    assert call("GetLoadState", collection_name="nope").state == common_pb2.LoadStateNotExist
    assert call("GetLoadingProgress", collection_name="books").status.code == 101
    unloaded = {"collection_name": "books", "type": milvus_pb2.InMemory}
    assert not call("ShowPartitions", **unloaded).partition_names
    assert call("ShowPartitions", **unloaded, partition_names=["_default"]).status.code == 201


@pytest.mark.usefixtures("books")
def test_the_replicas_of_a_loaded_collection_are_listed_with_their_nodes(call: Call) -> None:
    answer = call("GetReplicas", collection_name="books", with_shard_nodes=True)
    replica, other = answer.replicas
    shown = call("DescribeCollection", collection_name="books")
    assert (replica.collectionID, list(replica.node_ids)) == (shown.collectionID, [3])
    assert (other.replicaID, list(other.node_ids)) == (replica.replicaID + 1, [4])
    assert (replica.resource_group_name, other.resource_group_name) == ("group0", "group1")
    assert dict(other.num_outbound_node) == {"__default_resource_group": 1}
    assert [s.dm_channel_name for s in replica.shard_replicas] == list(shown.virtual_channel_names)
    assert [list(s.node_ids) for s in replica.shard_replicas] == [[3]] * len(replica.shard_replicas)
    partitions = call("ShowPartitions", collection_name="books")
    assert list(replica.partition_ids) == list(partitions.partitionIDs)
    assert call("ReleaseCollection", collection_name="books").code == 0
    assert call("GetReplicas", collection_name="books").status.code == 101


@pytest.mark.usefixtures("books")
def test_segments_are_moved_by_hand(call: Call, verbs: FakeVerbs) -> None:
    asked = {"src_nodeID": 3, "dst_nodeIDs": [4], "sealed_segmentIDs": [7, 8]}
    assert call("LoadBalance", collectionName="books", **asked).code == 0
    assert verbs.balances == [(3, (4,), (7, 8))]
    for absent in ("nope", "", "1 x"):
        missing = call("LoadBalance", collectionName=absent, **asked)
        assert (missing.code, missing.error_code) == (100, common_pb2.CollectionNotExists)


@pytest.mark.usefixtures("books")
def test_what_cannot_be_loaded_is_refused(call: Call) -> None:
    assert "due to no partition specified" in call("LoadPartitions", collection_name="books").reason
    assert "due to no partition specified" in call("ReleasePartitions", collection_name="books").reason
    assert call("LoadCollection", collection_name="books", resource_groups=["other"]).code == 300


# indexes


@pytest.mark.usefixtures("books")
def test_indexes_are_described_in_every_way(call: Call) -> None:
    (index,) = call("DescribeIndex", collection_name="books", timestamp=5).index_descriptions
    assert (index.index_name, index.field_name, index.state) == ("vector", "vector", common_pb2.Finished)
    assert {p.key: p.value for p in index.params} == {"index_type": "FLAT", "metric_type": "L2"}
    assert (index.total_rows, index.indexed_rows) == (2, 2)
    (again,) = call("GetIndexStatistics", collection_name="books").index_descriptions
    assert again == index
    assert call("GetIndexState", collection_name="books").state == common_pb2.Finished
    assert call("GetIndexBuildProgress", collection_name="books").total_rows == 2
    mapped = [common_pb2.KeyValuePair(key="mmap.enabled", value="true")]
    altered = call("AlterIndex", collection_name="books", index_name="vector", extra_params=mapped)
    assert altered.code == 0
    assert call("DropIndex", collection_name="books", index_name="vector").code == 0
    missing = call("DescribeIndex", collection_name="books").status
    assert (missing.code, missing.error_code) == (700, common_pb2.IndexNotExist)


@pytest.mark.usefixtures("books")
def test_an_index_is_altered_by_its_name(call: Call) -> None:
    mapped = [common_pb2.KeyValuePair(key="mmap.enabled", value="true")]
    one = {"collection_name": "books", "index_name": "vector"}
    assert call("AlterIndex", **one, extra_params=mapped).code == 0
    (index,) = call("DescribeIndex", collection_name="books").index_descriptions
    assert {p.key: p.value for p in index.params}["mmap.enabled"] == "true"
    assert call("AlterIndex", **one, delete_keys=["mmap.enabled"]).code == 0
    (index,) = call("DescribeIndex", collection_name="books").index_descriptions
    assert "mmap.enabled" not in {p.key for p in index.params}


# writes


@pytest.mark.usefixtures("books")
def test_writes_answer_with_keys_counts_and_a_timestamp(call: Call) -> None:
    answer = insert(call, "Upsert")
    assert (answer.insert_cnt, answer.delete_cnt, answer.upsert_cnt) == (2, 2, 2)
    assert list(answer.IDs.int_id.data) == [1, 2]
    assert (list(answer.succ_index), answer.timestamp > 0) == ([0, 1], True)
    answer = call("Delete", collection_name="books", expr="id in [1]")
    assert (answer.delete_cnt, answer.IDs.WhichOneof("id_field")) == (1, None)


@pytest.mark.usefixtures("books")
def test_a_delete_carries_its_filter_partition_and_client(call: Call, verbs: FakeVerbs) -> None:
    value = {"ids": {"array_val": {"long_data": {"data": [7]}}}}
    call(
        "Delete",
        collection_name="books",
        partition_name="_default",
        expr="id in {ids}",
        expr_template_values=value,
        consistency_level=int(ConsistencyLevel.BOUNDED),
    )
    (delete,) = verbs.deletes
    assert (delete.partition, delete.filter_values) == ("_default", {"ids": [7]})
    assert delete.client.startswith("ipv4:127.0.0.1:")
    assert call("Delete", collection_name="books").status.code == 1101


@pytest.mark.usefixtures("books")
def test_rows_packed_for_another_schema_are_refused_so_that_the_client_fetches_it(call: Call) -> None:
    version = call("DescribeCollection", collection_name="books").update_timestamp
    assert insert(call, schema_timestamp=version).status.code == 0
    status = insert(call, schema_timestamp=version - 1).status
    assert (status.code, status.error_code) == (109, common_pb2.SchemaMismatch)


@pytest.mark.usefixtures("books")
def test_a_refused_insert_leaves_no_trace(call: Call, verbs: FakeVerbs) -> None:
    columns = [scalar_data("id", DataType.INT64, [1])]
    assert call("Insert", collection_name="books", fields_data=columns, num_rows=1).status.code == 1100
    assert len(verbs.writes) == 1


@pytest.mark.usefixtures("books")
def test_a_flush_names_segments_and_times(call: Call, verbs: FakeVerbs) -> None:
    answer = call("Flush", collection_names=["books"])
    assert list(answer.coll_segIDs["books"].data) == [7]
    assert list(answer.flush_coll_segIDs["books"].data) == [6]
    flush_ts = answer.coll_flush_ts["books"]
    assert answer.coll_seal_times["books"] == physical_ms(flush_ts) // 1000
    state = call("GetFlushState", segmentIDs=[7], collection_name="books", flush_ts=flush_ts)
    assert state.flushed
    assert call("GetFlushAllState", flush_all_ts=call("FlushAll").flush_all_ts, db_name="of books").flushed
    assert verbs.flush_states == ["of books"]


@pytest.mark.usefixtures("books")
def test_segments_are_shown_with_their_states(call: Call) -> None:
    (flushed,) = call("GetPersistentSegmentInfo", collectionName="books").infos
    assert (flushed.segmentID, flushed.num_rows, flushed.state) == (7, 2, common_pb2.Flushed)
    assert flushed.insert_channel.startswith("by-dev-rootcoord-dml_0_")
    assert (flushed.is_sorted, flushed.level, flushed.storage_version) == (True, L1, 1)
    assert list(flushed.compaction_from) == [8]
    dropped = call("GetPersistentSegmentInfo", collectionName="books", states=[common_pb2.Dropped]).infos
    assert [segment.segmentID for segment in dropped] == [8]
    (sealed,) = call("GetQuerySegmentInfo", collectionName="books").infos
    assert (sealed.state, sealed.nodeID, list(sealed.nodeIds)) == (common_pb2.Sealed, 3, [3])
    assert sealed.mem_size == 64
    assert (sealed.is_sorted, sealed.level, sealed.storage_version) == (True, L1, 1)
    growing = call("GetPersistentSegmentInfo", collectionName="books", states=[common_pb2.Growing]).infos
    assert [(segment.segmentID, segment.is_sorted) for segment in growing] == [(9, False)]


# reads


@pytest.mark.usefixtures("books")
def test_a_search_and_a_query_answer_with_what_was_asked(call: Call) -> None:
    found = call("Search", search_request([[1, 1, 1, 1]], output_fields=["vector"]))
    assert (list(found.results.ids.int_id.data), list(found.results.scores)) == ([2, 1], [0, 4])
    assert list(found.results.fields_data[0].vectors.float_vector.data) == [1, 1, 1, 1, 0, 0, 0, 0]
    rows = call("Query", collection_name="books", expr="id in [2]")
    assert list(rows.fields_data[0].scalars.long_data.data) == [2]
    counted = call("Query", collection_name="books", output_fields=["count(*)"])
    assert list(counted.fields_data[0].scalars.long_data.data) == [2]


@pytest.mark.usefixtures("books")
def test_a_search_follows_a_collection_that_was_made_again(call: Call) -> None:
    assert call("Search", search_request()).status.code == 0
    call("DropCollection", collection_name="books")
    wider = schema_bytes(key_message(), vector_message(dim=8))
    call("CreateCollection", collection_name="books", schema=wider)
    assert "expected vector size(byte) 32" in call("Search", search_request()).status.reason


def test_reading_what_is_not_there_or_not_loaded_is_refused(call: Call) -> None:
    assert call("Search", search_request()).status.code == 100
    call("CreateCollection", collection_name="books", schema=BOOKS)
    assert call("Search", search_request()).status.code == 101
    assert call("Query", collection_name="books", expr="id > 0").status.code == 101
    assert "should not be empty" in call("Query", expr="id > 0").status.reason
