"""Struct arrays through the newest client: declared, inserted, returned, described, refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pymilvus import DataType, MilvusClient, MilvusException

from elanus.core.errors import InvalidFilter, InvalidParameter
from elanus.core.schema import CollectionSchema
from elanus.expr import compile_filter
from elanus.expr.key_range import shape
from elanus.proxy.role.outputs import resolve_outputs
from elanus.proxy.wire.rows import decode_rows
from elanus.proxy.wire.schemas import decode_schema
from elanus.proxy.wire.stubs import schema_pb2

VECTOR = [0.0] * 4
MEMBERS = ["clips[title]", "clips[seconds]"]
CLIPS = [{"title": "one", "seconds": 3}, {"title": "two", "seconds": 5}]


@pytest.fixture
def client(port: int) -> Iterator[MilvusClient]:
    client = MilvusClient(uri=f"http://127.0.0.1:{port}")
    yield client
    client.close()


def declared(client: MilvusClient, *, nullable: bool = False) -> Any:
    clip = client.create_struct_field_schema()
    clip.add_field("title", DataType.VARCHAR, max_length=10)
    clip.add_field("seconds", DataType.INT32)
    schema = client.create_schema(auto_id=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    more = {"nullable": True} if nullable else {}
    schema.add_field(
        "clips", DataType.ARRAY, element_type=DataType.STRUCT, struct_schema=clip, max_capacity=3, **more
    )
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=4)
    return schema


def made(client: MilvusClient, **options: bool) -> None:
    index = client.prepare_index_params("vector", index_type="FLAT", metric_type="L2")
    client.create_collection("films", schema=declared(client, **options), index_params=index)


def test_structs_come_back(client: MilvusClient) -> None:
    made(client)
    rows = [{"id": 1, "clips": CLIPS, "vector": VECTOR}, {"id": 2, "clips": [], "vector": VECTOR}]
    client.insert("films", rows)
    got = client.query("films", "id > 0", output_fields=["id", *MEMBERS])
    assert [row["clips"] for row in got] == [CLIPS, []]
    assert "clips[title]" not in got[0]
    (row,) = client.query("films", "id == 1", output_fields=["clips[title]"])
    assert row["clips"] == [{"title": "one"}, {"title": "two"}]
    (hits,) = client.search("films", [VECTOR], limit=1, filter="id == 1", output_fields=MEMBERS)
    assert hits[0]["entity"]["clips"] == CLIPS


def test_nulls(client: MilvusClient) -> None:
    made(client, nullable=True)
    rows = [{"id": 1, "vector": VECTOR, "clips": None}, {"id": 2, "vector": VECTOR, "clips": CLIPS[:1]}]
    client.insert("films", [*rows, {"id": 3, "vector": VECTOR}])
    got = client.query("films", "id > 0", output_fields=MEMBERS)
    assert [row["clips"] for row in got] == [None, CLIPS[:1], None]


def test_a_description_shows_the_struct(client: MilvusClient) -> None:
    made(client)
    described = client.describe_collection("films")
    (struct,) = [f for f in described["fields"] if f["name"] == "clips"]
    assert struct["type"] is DataType.ARRAY
    assert struct["element_type"] is DataType.STRUCT
    members = {f["name"]: f for f in struct["struct_fields"]}
    assert members["title"]["type"] is DataType.VARCHAR
    assert members["title"]["params"]["max_length"] == 10
    assert members["seconds"]["type"] is DataType.INT32
    assert struct["params"]["max_capacity"] == 3


def test_what_is_refused(client: MilvusClient) -> None:
    made(client)
    with pytest.raises(MilvusException, match=r"the length \(4\) of 0th array exceeds max capacity \(3\)"):
        client.insert("films", [{"id": 1, "clips": CLIPS * 2, "vector": VECTOR}])


def message(*fields: Any) -> bytes:
    schema = schema_pb2.CollectionSchema(name="films")
    schema.fields.add(name="id", data_type=5, is_primary_key=True)
    vector = schema.fields.add(name="vector", data_type=101)
    vector.type_params.add(key="dim", value="4")
    struct = schema.struct_array_fields.add(name="clips")
    struct.fields.extend(fields)
    content: bytes = schema.SerializeToString()
    return content


def array(name: str, data_type: int = 22) -> Any:
    made = schema_pb2.FieldSchema(name=name, data_type=data_type, element_type=5)
    made.type_params.add(key="max_capacity", value="3")
    return made


def test_schemas_that_are_refused() -> None:
    assert [f.name for f in decode_schema(message(array("a")), "films").fields][2] == "clips[a]"
    for fields, why in (
        ((), "has no sub-fields"),
        ((array("a"), array("a")), r"duplicated field name clips\[a\]"),
        ((array("a", 5),), "can only be array or array of struct"),
        ((array("a", 999),), "can only be array or array of struct, but field a is unknown DataType 999"),
        ((array("a[b]"),), "Invalid field name"),
        ([array("a[b]")] * 65, "maximum field's number should be limited to 64"),
    ):
        with pytest.raises(InvalidParameter, match=why):
            decode_schema(message(*fields), "films")


def test_fields_of_many_structs_are_counted_before_they_are_read() -> None:
    schema = schema_pb2.CollectionSchema.FromString(message(array("a")))
    for _ in range(64):
        schema.struct_array_fields.add(name="clips").fields.add(name="not read", data_type=999)
    with pytest.raises(InvalidParameter, match="maximum field's number should be limited to 64"):
        decode_schema(schema.SerializeToString(), "films")


def schema() -> CollectionSchema:
    return decode_schema(message(array("a"), array("b")), "films")


def test_all_arrays_of_a_row_have_one_length() -> None:
    def column(name: str, lengths: list[int]) -> Any:
        data = schema_pb2.FieldData(field_name=name, type=22)
        for length in lengths:
            data.scalars.array_data.data.add().long_data.data.extend(range(length))
        return data

    keys = schema_pb2.FieldData(field_name="id", type=5)
    keys.scalars.long_data.data.extend([1, 2])
    vectors = schema_pb2.FieldData(field_name="vector", type=101)
    vectors.vectors.dim = 4
    vectors.vectors.float_vector.data.extend([0.0] * 8)
    clips = schema_pb2.FieldData(field_name="clips", type=200)
    clips.struct_arrays.fields.extend([column("a", [1, 2]), column("b", [1, 3])])
    with pytest.raises(InvalidParameter, match=r"clips, row 1: clips\[a\] has 2 elements, clips\[b\] has 3"):
        decode_rows(schema(), [keys, vectors, clips], 2, with_auto_key=False)


def test_an_update_may_leave_the_structs_as_they_are() -> None:
    keys = schema_pb2.FieldData(field_name="id", type=5)
    keys.scalars.long_data.data.extend([1, 2])
    assert decode_rows(schema(), [keys], 2, with_auto_key=True, partial=True).schema.names == ["id"]


def test_filters_read_one_field_of_the_structs() -> None:
    of = schema()
    columns = {"clips[a]": pa.array([[1, 2], [], [3]], of.field("clips[a]").arrow_type)}
    for text, rows in (
        ('array_contains(clips["a"], 2)', [0]),
        ('clips["a"][0] == 3', [2]),
        ('array_length(clips["a"]) == 0', [1]),
    ):
        chosen = compile_filter(text, of)
        assert chosen.evaluate(columns, 3).nonzero()[0].tolist() == rows
        assert shape(compile_filter(chosen.explain(), of).predicate) == shape(chosen.predicate)
    with pytest.raises(InvalidFilter, match=r'field clips\["c"\] not exist'):
        compile_filter('array_contains(clips["c"], 2)', of)


@pytest.mark.parametrize("requested", [("clips",), ("clips[a]", "clips[b]"), ("id", "clips")])
def test_an_output_field_is_the_whole_struct(requested: tuple[str, ...]) -> None:
    found = resolve_outputs(schema(), requested, with_key=True)
    assert found.columns == ("id", "clips[a]", "clips[b]")
    assert found.names == ("id", "clips")


def test_a_plain_field_has_no_brackets() -> None:
    with pytest.raises(InvalidParameter, match="Invalid field name"):
        decode_schema(
            schema_pb2.CollectionSchema(
                name="films", fields=[schema_pb2.FieldSchema(name="a[b]", data_type=5)]
            ).SerializeToString(),
            "films",
        )
