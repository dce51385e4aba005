"""Fields that are altered and added, truncation, partial updates, and which fields to load, on the wire."""

from __future__ import annotations

from typing import Any

import pytest
from fake_verbs import FakeVerbs
from test_wire_families import books as books
from test_wire_families import insert
from wire_messages import Call, field_message, key_message, pairs, scalar_data, schema_bytes, vector_message

from elanus.core.schema import DataType
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2, schema_pb2


@pytest.mark.usefixtures("books")
def test_a_field_is_altered_and_the_schema_has_another_version(call: Call) -> None:
    before = call("DescribeCollection", collection_name="books")
    changed = pairs({"mmap.enabled": "true"})
    altered = call("AlterCollectionField", collection_name="books", field_name="vector", properties=changed)
    assert altered.code == 0
    after = call("DescribeCollection", collection_name="books")
    assert after.update_timestamp > before.update_timestamp
    assert {p.key: p.value for p in after.schema.fields[-1].type_params}["mmap.enabled"] == "true"
    assert insert(call, schema_timestamp=before.update_timestamp).status.code == 109
    assert insert(call, schema_timestamp=after.update_timestamp).status.code == 0


@pytest.mark.usefixtures("books")
def test_a_field_is_added_as_clients_of_every_generation_ask_for_it(call: Call) -> None:
    before = call("DescribeCollection", collection_name="books").update_timestamp
    first, second = (field_message(name, DataType.INT64, nullable=True) for name in ("n", "m"))
    added = call("AddCollectionField", collection_name="books", schema=first.SerializeToString())
    assert added.code == 0
    info = milvus_pb2.AlterCollectionSchemaRequest.FieldInfo(field_schema=second)
    assert alter_schema(call, field_infos=[info]).code == 0
    described = call("DescribeCollection", collection_name="books")
    assert [f.name for f in described.schema.fields] == ["id", "vector", "n", "m"]
    assert described.update_timestamp > before


@pytest.mark.usefixtures("books")
def test_a_default_moment_of_an_added_field_is_in_the_zone_of_the_collection(call: Call) -> None:
    zone = pairs({"timezone": "Asia/Shanghai"})
    assert call("AlterCollection", collection_name="books", properties=zone).code == 0
    fields = []
    for name in ("first", "second"):
        field = field_message(name, DataType.TIMESTAMPTZ, nullable=True)
        field.default_value.string_data = "2025-01-01T08:00:00"
        fields.append(field)
    added = call("AddCollectionField", collection_name="books", schema=fields[0].SerializeToString())
    assert added.code == 0, added.reason
    info = milvus_pb2.AlterCollectionSchemaRequest.FieldInfo(field_schema=fields[1])
    assert alter_schema(call, field_infos=[info]).code == 0
    described = call("DescribeCollection", collection_name="books").schema.fields
    shown = {f.name: f.default_value.string_data for f in described}
    assert shown["first"] == shown["second"] == "2025-01-01T08:00:00+08:00"


def alter_schema(call: Call, **added: object) -> common_pb2.Status:
    kind = milvus_pb2.AlterCollectionSchemaRequest
    action = kind.Action(add_request=kind.AddRequest(**added))
    return call("AlterCollectionSchema", collection_name="books", action=action).alter_status


@pytest.mark.usefixtures("books")
def test_what_cannot_be_added_to_a_schema_is_refused(call: Call) -> None:
    kind = milvus_pb2.AlterCollectionSchemaRequest
    assert "0 fields to add" in alter_schema(call).reason
    assert "do_physical_backfill" in alter_schema(call, do_physical_backfill=True).reason
    required = kind.FieldInfo(field_schema=field_message("n", DataType.INT64))
    assert "added field must be nullable" in alter_schema(call, field_infos=[required]).reason
    params = {"max_length": 20, "enable_match": "true"}
    text = kind.FieldInfo(field_schema=field_message("t", DataType.VARCHAR, params, nullable=True))
    assert "not enable analyzer" in alter_schema(call, field_infos=[text]).reason
    for field, reason in (
        (
            field_message("n", DataType.FLOAT, is_primary_key=True),
            "not support to add pk field, field name = n",
        ),
        (
            field_message("n", DataType.INT64, nullable=True, is_partition_key=True),
            "not support to add partition key field, field name  = n",
        ),
        (field_message("RowID", DataType.INT64), "not support to add system field, field name = RowID"),
        (
            field_message("w", DataType.FLOAT_VECTOR, nullable=True),
            "vector field must have dimension specified, field name = w",
        ),
        (
            field_message("w", DataType.NONE, nullable=True),
            "invalid parameter[expected=valid field][actual=field data type: None is not supported]",
        ),
    ):
        sent = field.SerializeToString()
        refused = call("AddCollectionField", collection_name="books", schema=sent)
        assert (refused.code, refused.reason.startswith(reason)) == (1100, True)
    assert call("AddCollectionField", collection_name="books", schema=b"\xff").code == 1100


def drop(call: Call, **dropped: object) -> common_pb2.Status:
    kind = milvus_pb2.AlterCollectionSchemaRequest
    action = kind.Action(drop_request=kind.DropRequest(**dropped))
    return call("AlterCollectionSchema", collection_name="books", action=action).alter_status


@pytest.mark.usefixtures("books")
def test_a_field_is_dropped_by_name_or_id(call: Call) -> None:
    kind = milvus_pb2.AlterCollectionSchemaRequest
    for name in ("n", "m"):
        field = field_message(name, DataType.INT64, nullable=True)
        assert alter_schema(call, field_infos=[kind.FieldInfo(field_schema=field)]).code == 0
    described = call("DescribeCollection", collection_name="books")
    ids = {f.name: f.fieldID for f in described.schema.fields}
    assert drop(call, field_name="n").code == 0
    assert drop(call, field_id=ids["m"]).code == 0
    after = call("DescribeCollection", collection_name="books")
    assert [f.name for f in after.schema.fields] == ["id", "vector"]
    assert after.update_timestamp > described.update_timestamp
    assert (drop(call, field_name="id").code, drop(call).code) == (1100, 1100)


@pytest.mark.usefixtures("books")
def test_a_function_comes_and_goes_with_its_field(call: Call, verbs: FakeVerbs) -> None:
    call("DropCollection", collection_name="books")
    text = field_message("text", DataType.VARCHAR, {"max_length": 20, "enable_analyzer": "true"})
    fields = [
        field_message("id", DataType.INT64, is_primary_key=True),
        field_message("vector", DataType.FLOAT_VECTOR, {"dim": 2}),
        text,
    ]
    schema = schema_pb2.CollectionSchema(name="books", fields=fields)
    made = call("CreateCollection", collection_name="books", schema=schema.SerializeToString())
    assert made.code == 0, made.reason
    kind = milvus_pb2.AlterCollectionSchemaRequest
    function = schema_pb2.FunctionSchema(
        name="bm25",
        type=schema_pb2.FunctionType.BM25,
        input_field_names=["text"],
        output_field_names=["terms"],
    )
    params = {"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "BM25"}
    info = kind.FieldInfo(
        field_schema=field_message("terms", DataType.SPARSE_FLOAT_VECTOR),
        index_name="i",
        extra_params=pairs(params),
    )
    added = alter_schema(call, field_infos=[info], func_schema=[function])
    assert added.code == 0, added.reason
    described = call("DescribeCollection", collection_name="books").schema
    assert [f.name for f in described.functions] == ["bm25"]
    assert {f.name: f.is_function_output for f in described.fields}["terms"]
    assert verbs.indexed == [("i", params)]

    for verb, named, reason in (
        ("AddCollectionFunction", {}, "currently does not support adding BM25 function through this API"),
        (
            "AlterCollectionFunction",
            {"function_name": "bm25"},
            "currently does not support alter BM25 function",
        ),
    ):
        status = call(verb, collection_name="books", functionSchema=function, **named)
        assert (status.code, reason in status.reason) == (1100, True)
        assert "function schema is empty" in call(verb, collection_name="books", **named).reason
        assert call(verb, collection_name="nope", functionSchema=function, **named).code == 100
    alone = call("DropCollectionFunction", collection_name="books", function_name="bm25")
    assert (alone.code, "does not support dropping BM25" in alone.reason) == (1100, True)
    assert call("DropCollectionFunction", collection_name="books", function_name="nope").code == 0

    assert drop(call, function_name="bm25").code == 1100
    assert drop(call, function_name="bm25", drop_function_output_fields=True).code == 0
    described = call("DescribeCollection", collection_name="books").schema
    assert [f.name for f in described.fields] == ["id", "vector", "text"]
    assert not described.functions


@pytest.mark.usefixtures("books")
def test_a_truncated_collection_has_no_rows(call: Call) -> None:
    assert call("TruncateCollection", collection_name="books").status.code == 0
    stats = call("GetCollectionStatistics", collection_name="books").stats
    assert {s.key: s.value for s in stats} == {"row_count": "0"}
    assert call("TruncateCollection", collection_name="nope").status.code == 100


@pytest.mark.usefixtures("books")
def test_collections_are_described_together_each_with_its_own_status(call: Call) -> None:
    answer = call("BatchDescribeCollection", collection_name=["books", "nope"])
    assert answer.status.code == 0
    assert [(r.collection_name, r.status.code) for r in answer.responses] == [("books", 0), ("nope", 100)]
    assert all(r.HasField("status") and r.HasField("schema") for r in answer.responses)  # for Node.js
    by_id = call("BatchDescribeCollection", collectionID=[answer.responses[0].collectionID])
    assert [r.collection_name for r in by_id.responses] == ["books"]
    none = call("BatchDescribeCollection")
    assert (none.status.code, none.status.reason.split(":")[0]) == (1101, "collection names cannot be empty")


@pytest.mark.usefixtures("books")
@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        (["id", "vector"], 0, ""),
        (["vector"], 1100, "does not contain primary key field id"),
        (["id"], 1100, "does not contain vector field"),
        (["id", "vector", "other"], 1700, "field other not exist"),
    ],
)
def test_the_fields_to_load_are_checked(call: Call, fields: list[str], code: int, reason: str) -> None:
    status = call("LoadCollection", collection_name="books", load_fields=fields, skip_load_dynamic_field=True)
    assert status.code == code
    assert reason in status.reason


def test_a_clustering_key_is_always_loaded(call: Call) -> None:
    key = field_message("stars", DataType.INT64, is_clustering_key=True)
    schema = schema_bytes(key_message(), vector_message(), key, name="c")
    assert call("CreateCollection", collection_name="c", schema=schema).code == 0
    index = {"field_name": "vector", "extra_params": pairs({"metric_type": "L2", "index_type": "FLAT"})}
    assert call("CreateIndex", collection_name="c", **index).code == 0
    status = call("LoadCollection", collection_name="c", load_fields=["id", "vector"])
    assert (status.code, "does not contain clustering key field stars" in status.reason) == (1100, True)


@pytest.mark.usefixtures("books")
def test_a_partial_update_has_the_columns_that_were_sent(call: Call, verbs: FakeVerbs) -> None:
    columns = [scalar_data("id", DataType.INT64, [1, 2])]
    answer = call("Upsert", collection_name="books", fields_data=columns, num_rows=2, partial_update=True)
    assert (answer.status.code, answer.upsert_cnt) == (0, 2)
    (update,) = verbs.updates
    assert update.rows.to_pydict() == {"id": [1, 2]}
    assert update.changes == {}


@pytest.mark.usefixtures("books")
@pytest.mark.parametrize(
    ("operations", "reason"),
    [
        ([("id", 7)], "unsupported partial update op: 7"),
        ([("id", 1), ("id", 2)], 'duplicate partial-update op for field "id"'),
    ],
)
def test_operations_on_arrays_are_checked(
    call: Call, verbs: FakeVerbs, operations: list[tuple[str, int]], reason: str
) -> None:
    columns = [scalar_data("id", DataType.INT64, [1])]
    ops = [schema_pb2.FieldPartialUpdateOp(field_name=name, op=op) for name, op in operations]
    answer = call("Upsert", collection_name="books", fields_data=columns, num_rows=1, field_ops=ops)
    assert (answer.status.code, verbs.updates) == (1100, [])
    assert reason in answer.status.reason


def test_a_function_with_a_provider_comes_to_a_field_and_goes_alone(call: Call, verbs: FakeVerbs) -> None:
    fields = [
        field_message("id", DataType.INT64, is_primary_key=True),
        field_message("vector", DataType.FLOAT_VECTOR, {"dim": 2}),
        field_message("text", DataType.VARCHAR, {"max_length": 9}),
    ]
    schema = schema_pb2.CollectionSchema(name="books", fields=fields)
    assert call("CreateCollection", collection_name="books", schema=schema.SerializeToString()).code == 0

    def function(**params: str) -> schema_pb2.FunctionSchema:
        return schema_pb2.FunctionSchema(
            name="embed",
            type=schema_pb2.FunctionType.TextEmbedding,
            input_field_names=["text"],
            output_field_names=["vector"],
            params=pairs({"provider": "TEI", **params}),
        )

    def shown() -> Any:
        return call("DescribeCollection", collection_name="books").schema

    assert call("AddCollectionFunction", collection_name="books", functionSchema=function()).code == 0
    assert [f.is_function_output for f in shown().fields] == [False, True, False]
    altered = call(
        "AlterCollectionFunction",
        collection_name="books",
        function_name="embed",
        functionSchema=function(truncate="True"),
    )
    assert altered.code == 0
    (found,) = shown().functions
    assert {p.key: p.value for p in found.params} == {"provider": "TEI", "truncate": "True"}
    nameless = call("AlterCollectionFunction", collection_name="books", functionSchema=function())
    assert "function name is empty" in nameless.reason
    assert call("DropCollectionFunction", collection_name="books", function_name="embed").code == 0
    assert not shown().functions
    assert not any(f.is_function_output for f in shown().fields)
