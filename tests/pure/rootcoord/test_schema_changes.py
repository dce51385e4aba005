"""Changes of a collection that keep its id: every proxy drops what it cached before they return."""

from __future__ import annotations

from fakes import schema
from root_bench import new, refused, started

from elanus.core.errors import CollectionNotFound, FieldNotFound, InvalidParameter
from elanus.core.ids import CollectionID, FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema

NUMBER = FieldSchema(FieldID(0), "n", DataType.INT64, nullable=True)


async def test_a_field_gets_other_bounds_and_the_schema_another_version() -> None:
    bench, root = await started()
    made = await root.create_collection(new(of=schema(key=DataType.VARCHAR, numbered=False)))
    bench.proxy.calls.asked.clear()
    await root.alter_field("default", "c", "pk", {"max_length": "128"}, ())
    found = await root.describe_collection("default", "c")
    assert found.schema.field("pk").max_length == 128
    assert found.schema_ts > made.created > made.schema_ts
    assert bench.proxy.calls.asked, "proxies drop the old schema"
    await refused(root.alter_field("default", "c", "nope", {"max_length": "1"}, ()), FieldNotFound)
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

    bench.data.change_schema = change_schema  # type: ignore[attr-defined]
    bench.query.reload = reload  # type: ignore[attr-defined]
    bench.proxy.calls.asked.clear()
    await root.add_field("default", "c", NUMBER)
    found = await root.describe_collection("default", "c")
    assert order == ["data 4 3", "query 3"]
    assert bench.proxy.calls.asked
    assert found.schema.field("n").is_added
    assert found.schema_ts > made.created
    await refused(root.add_field("default", "c", NUMBER), InvalidParameter, "duplicate field name: n")
    await root.stop()
