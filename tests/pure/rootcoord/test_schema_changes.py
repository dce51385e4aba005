"""Changes of a collection that keep its id: every proxy drops what it cached before they return."""

from __future__ import annotations

from fakes import schema
from root_bench import new, refused, started

from elanus.core.errors import CollectionNotFound, FieldNotFound
from elanus.core.schema import DataType


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
