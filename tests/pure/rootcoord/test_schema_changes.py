"""Changes of a collection that keep its id: every proxy drops what it cached before they return."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import schema
from root_bench import Bench, Root, new, refused, started

from elanus.core.consistency import ConsistencyLevel
from elanus.core.errors import CollectionNotFound, FieldNotFound, InvalidParameter, Unavailable
from elanus.core.functions import Function
from elanus.core.ids import CollectionID, FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.structs import StructSchema

NUMBER = FieldSchema(FieldID(0), "n", DataType.INT64, nullable=True)


async def test_a_field_gets_other_bounds_and_the_schema_another_version() -> None:
    bench, root = await started()
    made = await root.create_collection(new(of=schema(key=DataType.VARCHAR, numbered=False)))
    bench.proxy.calls.asked.clear()
    await root.alter_field("default", "c", "pk", {"max_length": "128"}, ())
    found = await root.describe_collection("default", "c")
    assert found.schema.field("pk").max_length == 128
    assert found.schema_ts > made.created > made.schema_ts
    assert (made.schema_changes, found.schema_changes) == (0, 1)
    assert bench.proxy.calls.asked, "proxies drop the old schema"
    await refused(root.alter_field("default", "c", "nope", {"max_length": "1"}, ()), FieldNotFound)
    await root.stop()


async def test_a_collection_gets_another_description_and_consistency_level() -> None:
    bench, root = await started("c")
    bench.proxy.calls.asked.clear()
    changed = {"collection.description": "books", "consistency_level": "Strong", "other": "1"}
    await root.alter_collection("default", "c", changed, ())
    found = await root.describe_collection("default", "c")
    assert (found.schema.description, found.consistency_level) == ("books", ConsistencyLevel.STRONG)
    assert dict(found.properties) == {"other": "1"}
    assert bench.proxy.calls.asked, "proxies drop what they cached"
    await root.stop()


async def test_truncating_is_remembered_with_its_moment() -> None:
    bench, root = await started("c")
    found = await root.describe_collection("default", "c")
    bench.proxy.calls.asked.clear()
    before = await root.alloc_timestamp(1)
    await root.truncate_collection(found.collection_id)
    truncated = (await root.describe_collection("default", "c")).truncated
    assert before < truncated < await root.alloc_timestamp(1)
    assert bench.proxy.calls.asked
    await root.drop_collection("default", "c")
    await refused(root.truncate_collection(found.collection_id), CollectionNotFound)
    await root.stop()


async def test_readers_get_a_field_before_any_proxy_can_write_it() -> None:
    bench, root = await started("c")
    made = await root.describe_collection("default", "c")
    order: list[str] = []

    async def change_schema(_: CollectionID, schema: CollectionSchema) -> None:
        order.append(f"data {len(schema.fields)} {len((await known()).fields)}")

    async def reload(_: CollectionID) -> None:
        order.append(f"query {len((await known()).fields)}")

    async def known() -> CollectionSchema:
        return (await root.describe_collection("default", "c")).schema

    bench.data.change_schema = change_schema  # type: ignore[method-assign]
    bench.query.reload = reload  # type: ignore[method-assign]
    bench.proxy.calls.asked.clear()
    await root.add_field("default", "c", NUMBER)
    found = await root.describe_collection("default", "c")
    assert order == ["data 4 3", "query 3"]
    assert bench.proxy.calls.asked
    assert found.schema.field("n").is_added
    assert found.schema_ts > made.created
    await refused(root.add_field("default", "c", NUMBER), InvalidParameter, "duplicate field name: n")
    await root.stop()


async def test_a_struct_array_is_added_with_all_its_arrays_in_one_change() -> None:
    bench, root = await started("c")
    clips = StructSchema(FieldID(0), "clips", nullable=True)
    members = tuple(
        FieldSchema(
            FieldID(0),
            f"clips[{name}]",
            DataType.ARRAY,
            element_type=DataType.INT64,
            max_capacity=4,
            nullable=True,
        )
        for name in ("start", "end")
    )
    bench.data.calls.asked.clear()
    await root.add_struct("default", "c", clips, members)
    found = (await root.describe_collection("default", "c")).schema
    assert [f.name for f in found.members("clips")] == ["clips[start]", "clips[end]"]
    assert all(f.is_added for f in found.members("clips"))
    assert len({f.field_id for f in (*found.fields, *found.structs)}) == len(found.fields) + 1
    assert [name for name, *_ in bench.data.calls.asked].count("change_schema") == 1
    await refused(root.add_struct("default", "c", clips, members), InvalidParameter, "duplicate field name")
    await root.stop()


BM25 = Function("bm25", "BM25", ("text",), ("terms",))
TERMS = FieldSchema(FieldID(0), "terms", DataType.SPARSE_FLOAT_VECTOR)
TEXTS = (
    FieldSchema(FieldID(0), "text", DataType.VARCHAR, max_length=9, params={"enable_analyzer": "true"}),
    FieldSchema(FieldID(0), "n", DataType.INT64),
)


async def with_texts() -> tuple[Bench, Root, CollectionID]:
    bench, root = await started()
    plain = schema(numbered=False)
    made = await root.create_collection(new(of=replace(plain, fields=(*plain.fields, *TEXTS))))
    bench.index.calls.asked.clear()
    return bench, root, made.collection_id


async def test_a_field_is_dropped_with_its_indexes_and_readers_know_first() -> None:
    bench, root, collection_id = await with_texts()
    n = (await root.describe_collection("default", "c")).schema.field("n")
    order: list[str] = []

    async def change_schema(_: CollectionID, schema: CollectionSchema) -> None:
        found = await root.describe_collection("default", "c")
        order.append(f"data {'n' in schema.by_name} {'n' in found.schema.by_name}")
        assert found.readers_schema == schema

    async def reload(_: CollectionID) -> None:
        order.append("query")

    bench.data.change_schema = change_schema  # type: ignore[method-assign]
    bench.query.reload = reload  # type: ignore[method-assign]
    await root.drop_field("default", "c", "n", FieldID(0))
    found = await root.describe_collection("default", "c")
    assert order == ["data False True", "query"]
    assert found.becoming is None
    assert "n" not in found.schema.by_name
    ((asked_id, kept),) = bench.index.calls.of("drop_other_indexes")
    assert (asked_id, set(kept)) == (collection_id, set(found.schema.by_id))
    assert n.field_id not in kept
    await refused(root.drop_field("default", "c", "n", FieldID(0)), InvalidParameter, "field not found: n")
    await root.stop()


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_drop_that_was_interrupted_is_completed(restarts: bool) -> None:
    bench, root, _ = await with_texts()

    async def fails(_: CollectionID, schema: CollectionSchema) -> None:
        raise Unavailable("datacoord is gone")

    works = bench.data.change_schema
    bench.data.change_schema = fails  # type: ignore[method-assign]
    await refused(root.drop_field("default", "c", "n", FieldID(0)), Unavailable)
    found = await root.describe_collection("default", "c")
    assert "n" in found.schema.by_name, "proxies know the former schema"
    bench.data.change_schema = works  # type: ignore[method-assign]
    if restarts:
        root = await bench.restart()
    await root.tidy()
    found = await root.describe_collection("default", "c")
    assert found.becoming is None
    assert "n" not in found.schema.by_name
    await root.stop()


async def test_a_field_is_added_although_that_was_interrupted() -> None:
    """Files may have its column by then: another field of that name would find its values there."""
    bench, root = await started("c")

    async def fails(_: CollectionID) -> None:
        raise Unavailable("querycoord is gone")

    works = bench.query.reload
    bench.query.reload = fails  # type: ignore[method-assign]
    await refused(root.add_field("default", "c", NUMBER), Unavailable)
    bench.query.reload = works  # type: ignore[method-assign]
    root = await bench.restart()
    other = replace(NUMBER, data_type=DataType.DOUBLE)
    await refused(root.add_field("default", "c", other), InvalidParameter, "duplicate field name: n")
    found = await root.describe_collection("default", "c")
    assert found.schema.field("n").data_type is DataType.INT64
    await root.stop()


async def test_another_change_completes_the_one_that_was_interrupted_first() -> None:
    bench, root, _ = await with_texts()

    async def fails(_: CollectionID) -> None:
        raise Unavailable("querycoord is gone")

    works = bench.query.reload
    bench.query.reload = fails  # type: ignore[method-assign]
    await refused(root.drop_field("default", "c", "n", FieldID(0)), Unavailable)
    bench.query.reload = works  # type: ignore[method-assign]
    await root.add_field("default", "c", NUMBER)
    found = (await root.describe_collection("default", "c")).schema
    assert [d.name for d in found.dropped] == ["n"]
    assert found.field("n").field_id > found.dropped[0].field_id
    await root.stop()


async def test_a_function_gets_its_field_and_its_index_before_rows_are_read_with_them() -> None:
    bench, root, collection_id = await with_texts()
    params = {"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "BM25"}
    order: list[str] = []

    async def reload(_: CollectionID) -> None:
        order.extend(call for call, _ in bench.index.calls.asked if call == "create_index")
        order.append("query")

    bench.query.reload = reload  # type: ignore[method-assign]
    await root.add_function("default", "c", TERMS, BM25, "i", params)
    found = (await root.describe_collection("default", "c")).schema
    assert order == ["create_index", "query"]
    assert ("create_index", (collection_id, "terms", "i", params)) in bench.index.calls.asked
    assert found.functions == (BM25,)
    assert found.field("terms").is_function_output
    await root.drop_function("default", "c", "bm25", True)
    found = (await root.describe_collection("default", "c")).schema
    assert found.functions == ()
    assert "terms" not in found.by_name
    await root.stop()


async def test_a_function_whose_values_are_stored_is_added_altered_and_dropped_alone() -> None:
    _, root, _ = await with_texts()
    embed = Function("f", "TextEmbedding", ("text",), ("v0",), params={"provider": "tei", "dim": "0"})
    await root.set_function("default", "c", embed, "")
    before = await root.describe_collection("default", "c")
    assert before.schema.functions == (embed,)
    assert before.schema.field("v0").is_function_output
    other = replace(embed, params={"provider": "tei", "endpoint": "http://other"})
    await root.set_function("default", "c", other, "f")
    found = await root.describe_collection("default", "c")
    assert found.schema.functions == (other,)
    assert found.schema_ts > before.schema_ts, "clients have to fetch the schema again"
    await root.drop_function("default", "c", "f", False)
    found = await root.describe_collection("default", "c")
    assert found.schema.functions == ()
    assert not found.schema.field("v0").is_function_output
    await refused(root.set_function("default", "c", other, "f"), InvalidParameter, "function not found: f")
    await root.stop()


async def test_another_field_by_which_rows_expire_is_another_schema() -> None:
    bench, root = await started()
    plain = schema(numbered=False)
    until = FieldSchema(FieldID(0), "until", DataType.TIMESTAMPTZ, nullable=True)
    await root.create_collection(new(of=replace(plain, fields=(*plain.fields, until))))
    reloads = bench.query.calls.asked
    reloads.clear()
    await root.alter_collection("default", "c", {"ttl_field": "until"}, ())
    found = await root.describe_collection("default", "c")
    assert (found.schema.ttl_field, found.properties["ttl_field"]) == ("until", "until")
    assert [call for call, _ in reloads] == ["reload"]
    await root.alter_collection("default", "c", {"ttl_field": "until", "other": "1"}, ())
    assert len(reloads) == 1, "the schema is the same"
    await refused(root.drop_field("default", "c", "until", FieldID(0)), InvalidParameter, "ttl_field")
    await root.alter_collection("default", "c", {}, ("ttl_field",))
    found = await root.describe_collection("default", "c")
    assert (found.schema.ttl_field, "ttl_field" in found.properties, len(reloads)) == ("", False, 2)
    await root.stop()
