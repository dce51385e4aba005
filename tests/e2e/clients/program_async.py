"""AsyncMilvusClient in ordinary use: definitions, writes, reads, several calls at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from checks import DIM, VECTORS, check, uri
from pymilvus import AnnSearchRequest, AsyncMilvusClient, DataType, RRFRanker

NAME = "async_rows"
LOOP = asyncio.new_event_loop()
Step = Callable[[], Coroutine[Any, Any, None]]


def on_loop(step: Step) -> Callable[[], None]:
    """The client belongs to one event loop, so all checks run on the same."""
    return lambda: LOOP.run_until_complete(step())


async def connect() -> AsyncMilvusClient:
    return AsyncMilvusClient(uri())


client = LOOP.run_until_complete(connect())


def rows(first: int, last: int) -> list[dict[str, Any]]:
    return [{"id": n, "kind": "even" if n % 2 == 0 else "odd", "v": VECTORS[n]} for n in range(first, last)]


async def keys(expression: str, **options: Any) -> list[int]:
    found = await client.query(NAME, expression, output_fields=["id"], **options)
    return sorted(row["id"] for row in found)


@check("server version")
@on_loop
async def _() -> None:
    assert await client.get_server_version()


@check("create with a schema and an index, describe, list")
@on_loop
async def _() -> None:
    schema = client.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("kind", DataType.VARCHAR, max_length=10)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=DIM)
    index = client.prepare_index_params()
    index.add_index("v", index_type="HNSW", metric_type="L2", params={"M": 8, "efConstruction": 64})
    await client.create_collection(NAME, schema=schema, index_params=index)
    assert await client.has_collection(NAME)
    assert NAME in await client.list_collections()
    described = await client.describe_collection(NAME)
    assert [field["name"] for field in described["fields"]] == ["id", "kind", "v"]
    assert await client.list_indexes(NAME) == ["v"]
    assert (await client.describe_index(NAME, "v"))["index_type"] == "HNSW"


@check("inserts at the same time, and the rows are seen at once")
@on_loop
async def _() -> None:
    batches = [client.insert(NAME, rows(first, first + 50)) for first in range(0, 300, 50)]
    answers = await asyncio.gather(*batches)
    assert [answer["insert_count"] for answer in answers] == [50] * 6
    (counted,) = await client.query(NAME, output_fields=["count(*)"])
    assert counted["count(*)"] == 300


@check("searches at the same time: `ef`, filter, output fields")
@on_loop
async def _() -> None:
    searches = [
        client.search(
            NAME, [VECTORS[n]], limit=3, search_params={"params": {"ef": 64}}, output_fields=["kind"]
        )
        for n in range(20)
    ]
    for n, (hits,) in enumerate(await asyncio.gather(*searches)):
        assert hits[0]["id"] == n
        assert hits[0]["entity"]["kind"] == ("even" if n % 2 == 0 else "odd")
    (hits,) = await client.search(NAME, [VECTORS[4]], limit=5, filter='kind == "odd"')
    assert all(hit["id"] % 2 == 1 for hit in hits)
    assert len(hits) == 5


@check("range search")
@on_loop
async def _() -> None:
    (near,) = await client.search(NAME, [VECTORS[9]], limit=300, search_params={"params": {"radius": 6.0}})
    assert near[0]["id"] == 9
    assert all(hit["distance"] < 6.0 for hit in near)
    assert len(near) < 300


@check("query, get")
@on_loop
async def _() -> None:
    assert await keys("id < 5") == [0, 1, 2, 3, 4]
    assert await keys("id >= 0", limit=2, offset=1) == [1, 2]
    assert [row["kind"] for row in await client.get(NAME, [7, 8])] == ["odd", "even"]


@check("upsert, delete")
@on_loop
async def _() -> None:
    await client.upsert(NAME, [{"id": 1, "kind": "new", "v": VECTORS[1]}])
    assert await keys('kind == "new"') == [1]
    await client.delete(NAME, ids=[2, 3])
    await client.delete(NAME, filter="id in [4]")
    assert await keys("id < 6") == [0, 1, 5]


@check("flush, compact, and the state of the compaction")
@on_loop
async def _() -> None:
    await client.flush(NAME)
    # 300 and the one upserted: deleted rows count until a compaction has removed them
    assert int((await client.get_collection_stats(NAME))["row_count"]) == 301
    job = await client.compact(NAME)
    for _ in range(600):
        if await client.get_compaction_state(job) == "Completed":
            break
        await asyncio.sleep(0.1)
    assert await client.get_compaction_state(job) == "Completed"


@check("`optimize`")
@on_loop
async def _() -> None:
    done = await client.optimize(NAME, target_size="1GB")
    assert done.status == "success"
    assert await keys("id < 6") == [0, 1, 5]


@check("partitions")
@on_loop
async def _() -> None:
    await client.create_partition(NAME, "part")
    assert await client.has_partition(NAME, "part")
    assert sorted(await client.list_partitions(NAME)) == ["_default", "part"]
    await client.insert(NAME, [{"id": 900, "kind": "apart", "v": VECTORS[0]}], partition_name="part")
    assert await keys("id >= 0", partition_names=["part"], limit=10) == [900]
    await client.release_partitions(NAME, ["part"])
    await client.drop_partition(NAME, "part")


@check("aliases, rename")
@on_loop
async def _() -> None:
    await client.create_alias(NAME, "async_alias")
    assert (await client.describe_alias("async_alias"))["collection_name"] == NAME
    assert await client.list_aliases(NAME) == ["async_alias"]
    await client.drop_alias("async_alias")
    await client.rename_collection(NAME, "async_other")
    assert await client.has_collection("async_other")
    await client.rename_collection("async_other", NAME)


@check("release, load, load state")
@on_loop
async def _() -> None:
    await client.release_collection(NAME)
    assert (await client.get_load_state(NAME))["state"].name == "NotLoad"
    await client.load_collection(NAME)
    assert (await client.get_load_state(NAME))["state"].name == "Loaded"
    assert await keys("id < 6") == [0, 1, 5]


@check("databases")
@on_loop
async def _() -> None:
    await client.create_database("async_db")
    assert "async_db" in await client.list_databases()
    other = AsyncMilvusClient(uri(), db_name="async_db")
    assert await other.list_collections() == []
    await other.close()
    await client.drop_database("async_db")


@check("hybrid search")
@on_loop
async def _() -> None:
    request = AnnSearchRequest([VECTORS[0]], "v", {"params": {}}, limit=3)
    (hits,) = await client.hybrid_search(NAME, [request, request], RRFRanker(), limit=3)
    (alone,) = await client.search(NAME, [VECTORS[0]], limit=3)
    assert [hit["id"] for hit in hits] == [hit["id"] for hit in alone]


@check("group by")
@on_loop
async def _() -> None:
    (hits,) = await client.search(NAME, [VECTORS[0]], limit=3, group_by_field="kind", output_fields=["kind"])
    kinds = [hit["entity"]["kind"] for hit in hits]
    assert len(set(kinds)) == len(kinds) > 0


@check("scalar index of a loaded collection: create, drop")
@on_loop
async def _() -> None:
    index = client.prepare_index_params()
    index.add_index("kind", index_type="INVERTED")
    await client.create_index(NAME, index)
    await client.drop_index(NAME, "kind")


@check("partial upsert")
@on_loop
async def _() -> None:
    await client.upsert(NAME, [{"id": 0, "kind": "new"}], partial_update=True)
    (row,) = await client.get(NAME, ids=[0], output_fields=["kind"])
    assert row["kind"] == "new"


@check("truncate")
@on_loop
async def _() -> None:
    await client.truncate_collection(NAME)
    assert await client.query(NAME, filter="id >= 0", limit=1, consistency_level="Strong") == []


@check("users")
@on_loop
async def _() -> None:
    await client.create_user("ann", "password")
    assert "ann" in await client.list_users()
    await client.drop_user("ann")


@check("drop")
@on_loop
async def _() -> None:
    await client.drop_collection(NAME)
    assert not await client.has_collection(NAME)


LOOP.run_until_complete(client.close())
