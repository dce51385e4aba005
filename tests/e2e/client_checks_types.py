"""Checks of `client_program`: the types that only newer clients have."""

from __future__ import annotations

from typing import Any

import numpy as np
from client_base import DIM, FLAT, L2, VECTORS, VERSION, check, collection, keys, new_name, program
from pymilvus import Collection, DataType, FieldSchema, MilvusClient

try:
    from pymilvus.client.embedding_list import EmbeddingList
except ImportError:  # clients before 2.6
    EmbeddingList = None


def _served(made: Collection, *indexed: str) -> Collection:
    for name in indexed or ("v",):
        made.create_index(name, FLAT, sync=False)
    made.load()
    return made


@check("Types", "nullable vectors: search, `is null`, upsert", needs=VERSION >= (2, 6))
def _() -> None:
    vector = FieldSchema("v", DataType.FLOAT_VECTOR, dim=DIM, nullable=True)
    with collection(vector=vector) as made:
        made.insert([{"key": n, "v": VECTORS[n] if n % 3 else None} for n in range(9)])
        _served(made)
        assert keys(made.query("v is null")) == [0, 3, 6]
        (hits,) = made.search(VECTORS[4:5], "v", L2, 9)
        assert hits.ids[0] == 4
        assert sorted(hits.ids) == [1, 2, 4, 5, 7, 8]
        rows = made.query("key < 2", output_fields=["v"])
        assert rows[0]["v"] is None
        assert np.array_equal(np.asarray(rows[1]["v"], np.float32), VECTORS[1])
        made.upsert([{"key": 0, "v": VECTORS[0]}, {"key": 4, "v": None}])
        assert keys(made.query("v is null")) == [3, 4, 6]
        assert made.search(VECTORS[:1], "v", L2, 1)[0].ids == [0]


@check("Types", "TIMESTAMPTZ: time zones, intervals", needs=hasattr(DataType, "TIMESTAMPTZ"))
def _() -> None:
    moment = FieldSchema("t", DataType.TIMESTAMPTZ, nullable=True)
    with collection(moment) as made:
        made.set_properties({"timezone": "Asia/Shanghai"})
        texts: list[Any] = ["2025-01-01T00:00:00Z", "2025-01-31 08:00:00", None]
        made.insert([{"key": n, "t": texts[n], "v": VECTORS[n]} for n in range(3)])
        _served(made)
        assert keys(made.query("t > ISO '2025-01-01T00:00:00Z'")) == [1]
        assert keys(made.query("t + INTERVAL 'P1D' == ISO '2025-02-01T08:00:00'")) == [1]
        rows = made.query("key >= 0", output_fields=["t"])
        assert [row["t"] for row in rows] == ["2025-01-01T08:00:00+08:00", "2025-01-31T08:00:00+08:00", None]
        rows = made.query("key == 1", output_fields=["t"], timezone="UTC")
        assert rows[0]["t"] == "2025-01-31T00:00:00Z"


@check("Types", "TIMESTAMPTZ: `time_fields`", needs=VERSION >= (2, 6))
def _() -> None:
    with collection(FieldSchema("t", DataType.TIMESTAMPTZ)) as made:
        made.insert([{"key": 1, "t": "2025-05-06T07:08:09Z", "v": VECTORS[1]}])
        _served(made)
        rows = made.query("key == 1", output_fields=["t"], time_fields="year,month,hour")
        assert list(rows[0]["t"]) == [2025, 5, 7]


@check("Types", "GEOMETRY: WKT, `st_within`, `st_dwithin`", needs=hasattr(DataType, "GEOMETRY"))
def _() -> None:
    with collection(FieldSchema("place", DataType.GEOMETRY, nullable=True)) as made:
        places: list[Any] = ["POINT (1 1)", "POLYGON ((5 5, 6 5, 6 6, 5 5))", None, "POINT (1.001 1)"]
        made.insert([{"key": n, "place": places[n], "v": VECTORS[n]} for n in range(4)])
        _served(made)
        rows = made.query("key >= 0", output_fields=["place"])
        assert [row["place"] for row in rows] == places
        square = "POLYGON ((0 0, 2 0, 2 2, 0 2, 0 0))"
        assert keys(made.query(f"ST_WITHIN(place, '{square}')")) == [0, 3]
        assert keys(made.query("st_dwithin(place, 'POINT (1 1)', 100)")) == [0]
        assert made.search(VECTORS[1:2], "v", L2, 1, expr="st_isvalid(place)")[0].ids == [1]


@check("Types", "TEXT", needs=hasattr(DataType, "TEXT"))
def _() -> None:
    with collection(FieldSchema("x", DataType.TEXT, enable_analyzer=True, enable_match=True)) as made:
        texts = ["é漢字 " * 50_000, "", "short"]
        made.insert([{"key": n, "x": texts[n], "v": VECTORS[n]} for n in range(3)])
        _served(made)
        assert [row["x"] for row in made.query("key >= 0", output_fields=["x"])] == texts
        assert keys(made.query("text_match(x, 'short')")) == [2]


def _clips_collection(metric: str) -> tuple[MilvusClient, str]:
    """Four rows, of which row n has n structs with a vector."""
    client = MilvusClient(uri=program.uri)
    clip = client.create_struct_field_schema()
    clip.add_field("w", DataType.FLOAT_VECTOR, dim=2)
    clip.add_field("seconds", DataType.INT64)
    schema = client.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field(
        "clips", DataType.ARRAY, element_type=DataType.STRUCT, struct_schema=clip, max_capacity=5
    )
    index = client.prepare_index_params()
    params = {"M": 8, "efConstruction": 64}
    index.add_index("clips[w]", index_type="HNSW", metric_type=metric, params=params)
    index.add_index("clips[seconds]", index_type="INVERTED")
    name = new_name()
    client.create_collection(name, schema=schema, index_params=index, consistency_level="Strong")
    client.insert(
        name,
        [
            {"key": n, "clips": [{"w": [float(n), float(m)], "seconds": m} for m in range(n)]}
            for n in range(4)
        ],
    )
    return client, name


@check("Types", "struct arrays: vectors, searched with lists", needs=EmbeddingList is not None)
def _() -> None:
    for metric, best in (("MAX_SIM_L2", [3, 2, 1]), ("MAX_SIM_IP", [3, 2, 1])):
        client, name = _clips_collection(metric)
        query = EmbeddingList()
        query.add([3.0, 0.0])
        query.add([3.0, 2.0])
        for flushed in (False, True):
            if flushed:
                client.flush(name)
            (hits,) = client.search(
                name, [query], anns_field="clips[w]", limit=3, output_fields=["clips[w]", "clips[seconds]"]
            )
            assert [hit["key"] for hit in hits] == best, hits
            clips = hits[0]["entity"]["clips"]
            assert [list(clip["w"]) for clip in clips] == [[3.0, 0.0], [3.0, 1.0], [3.0, 2.0]]
        client.drop_collection(name)


@check("Types", "struct arrays: vectors, searched one by one", needs=EmbeddingList is not None)
def _() -> None:
    client, name = _clips_collection("L2")
    for flushed in (False, True):
        if flushed:
            client.flush(name)
        search = {"collection_name": name, "data": [[3.0, 2.0]], "anns_field": "clips[w]"}
        (hits,) = client.search(**search, limit=3)
        assert [hit["key"] for hit in hits] == [3, 3, 2], hits
        (few,) = client.search(**search, limit=2, group_by_field="key")
        assert [hit["key"] for hit in few] == [3, 2], few
        (near,) = client.search(**search, limit=5, search_params={"params": {"radius": 1.5}})
        assert [hit["key"] for hit in near] == [3, 3], near
    client.drop_collection(name)


@check("Filters", "conditions on the elements of struct arrays", needs=EmbeddingList is not None)
def _() -> None:
    client, name = _clips_collection("L2")
    for text, found in (
        ("match_any(clips, $[seconds] == 2)", [3]),
        ("MATCH_ALL(clips, $[seconds] < 2)", [0, 1, 2]),
        ("match_least(clips, $[seconds] < 2, threshold=2)", [2, 3]),
        ("match_most(clips, $[seconds] >= 0, threshold=1)", [0, 1]),
        ("key > 0 && match_exact(clips, $[seconds] >= 0, threshold=2)", [2]),
    ):
        assert keys(client.query(name, text)) == found, text
    text = "key > 1 and element_filter(clips, $[seconds] >= 1)"
    assert sorted(set(keys(client.query(name, text)))) == [2, 3]
    (hits,) = client.search(name, [[3.0, 0.0]], anns_field="clips[w]", limit=9, filter=text)
    assert [hit["key"] for hit in hits] == [3, 2, 3], hits
    client.drop_collection(name)


@check(
    "Collections",
    "add a struct array: older rows have null; search of its vectors, alter, drop",
    needs=hasattr(MilvusClient, "add_collection_struct_field"),
)
def _() -> None:
    client = MilvusClient(uri=program.uri)
    name = new_name()
    schema = client.create_schema(enable_dynamic_field=True)
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=DIM)
    index = client.prepare_index_params("v", index_type="FLAT", metric_type="L2")
    client.create_collection(name, schema=schema, index_params=index, consistency_level="Strong")
    client.insert(name, [{"key": n, "v": VECTORS[n], "tone": "old"} for n in range(3)])
    clip = client.create_struct_field_schema(nullable=True)
    clip.add_field("title", DataType.VARCHAR, max_length=10)
    clip.add_field("look", DataType.FLOAT_VECTOR, dim=DIM)
    client.add_collection_struct_field(name, "clips", clip, max_capacity=3)
    clips = [{"title": f"t{n}", "look": VECTORS[n].tolist()} for n in (3, 4)]
    client.insert(name, [{"key": 3, "v": VECTORS[3], "clips": clips}, {"key": 4, "v": VECTORS[4]}])
    rows = client.query(name, "key >= 0", output_fields=["clips", "tone"])
    assert [row["clips"] is None for row in rows] == [True, True, True, False, True]
    assert [clip["title"] for clip in rows[3]["clips"]] == ["t3", "t4"]
    assert keys(client.query(name, 'array_contains(clips["title"], "t4")')) == [3]
    client.alter_collection_field(name, "clips", {"max_capacity": 5})
    client.insert(name, [{"key": 5, "v": VECTORS[5], "clips": clips * 2}])
    looks = client.prepare_index_params()
    looks.add_index("clips[look]", index_type="HNSW", metric_type="COSINE")
    client.create_index(name, looks)
    client.release_collection(name)
    client.load_collection(name)
    (hits,) = client.search(name, [VECTORS[4]], anns_field="clips[look]", limit=2)
    assert {hit["key"] for hit in hits} <= {3, 5}
    client.drop_collection_field(name, "clips")
    assert "clips" not in client.query(name, "key == 3", output_fields=["*"])[0]
    client.drop_collection(name)


@check("Types", "struct arrays: insert, filters, query", needs=hasattr(DataType, "STRUCT"))
def _() -> None:
    client = MilvusClient(uri=program.uri)
    clip = client.create_struct_field_schema()
    clip.add_field("title", DataType.VARCHAR, max_length=10)
    clip.add_field("seconds", DataType.INT32)
    schema = client.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=DIM)
    schema.add_field(
        "clips", DataType.ARRAY, element_type=DataType.STRUCT, struct_schema=clip, max_capacity=3
    )
    index = client.prepare_index_params("v", index_type="FLAT", metric_type="L2")
    name = new_name()
    client.create_collection(name, schema=schema, index_params=index, consistency_level="Strong")
    clips = [[{"title": "one", "seconds": 3}, {"title": "two", "seconds": 5}], []]
    client.insert(name, [{"key": n, "v": VECTORS[n], "clips": clips[n]} for n in range(2)])
    rows = client.query(name, "key >= 0", output_fields=["clips"])
    assert [row["clips"] for row in rows] == clips
    (hits,) = client.search(name, [VECTORS[0]], limit=1, output_fields=["clips"])
    assert hits[0]["entity"]["clips"] == clips[0]
    assert keys(client.query(name, 'array_contains(clips["title"], "two")')) == [0]
    client.drop_collection(name)
