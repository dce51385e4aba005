"""Definitions of scalar indexes, of which a JSON field may have several, and alterations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import CID, collection, schema, settle
from index_bench import HNSW, Bench, segment

from elanus.core.errors import IndexConflict, IndexNotFound, InvalidParameter
from elanus.core.ids import FieldID
from elanus.core.schema import DataType, FieldSchema


def on_json(path: str, cast: str = "double") -> dict[str, str]:
    return {"index_type": "INVERTED", "json_path": path, "json_cast_type": cast}


def with_field(tmp_path: Path, field: FieldSchema) -> Bench:
    of = schema()
    return Bench(tmp_path, collection(replace(of, fields=(*of.fields, field))))


async def test_a_json_field_has_an_index_for_each_path(tmp_path: Path) -> None:
    doc = FieldSchema(FieldID(200), "doc", DataType.JSON)
    bench = with_field(tmp_path, doc)
    coord = await bench.start()
    for name, path in (("a", "doc['a']"), ("b", "doc['b']"), ("whole", "doc"), ("a", "doc['a']")):
        await coord.create_index(CID, doc, name, on_json(path))
    assert [index.name for index in await coord.indexes(CID)] == ["a", "b", "whole"]
    for name, params in (
        ("other", on_json('doc["a"]')),
        ("a", on_json("doc['a']", "varchar")),
        ("a", on_json("doc['c']")),
    ):
        with pytest.raises(IndexConflict):
            await coord.create_index(CID, doc, name, params)
    await coord.stop()


async def test_a_scalar_field_has_one_index(tmp_path: Path) -> None:
    color = FieldSchema(FieldID(200), "color", DataType.VARCHAR, max_length=20)
    bench = with_field(tmp_path, color)
    coord = await bench.start()
    await coord.create_index(CID, color, "color", {"index_type": "BITMAP"})
    with pytest.raises(IndexConflict, match="at most one distinct index is allowed per field"):
        await coord.create_index(CID, color, "color", {"index_type": "INVERTED"})
    key = FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True)
    with pytest.raises(InvalidParameter, match="create bitmap index on primary key not supported"):
        await coord.create_index(CID, key, "id", {"index_type": "BITMAP"})
    await coord.stop()


async def test_an_altered_index_is_not_built_again_and_its_files_say_how_to_read_them(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.start()
    await bench.create()
    node = await bench.node()
    await bench.flushed(segment(1))
    (index,) = await bench.coord.indexes(CID)
    mapped = HNSW | {"mmap.enabled": "true"}
    for _ in range(2):
        await bench.coord.alter_index(CID, index.name, {"mmap.enabled": "true"}, ())
    await settle()
    (altered,) = await bench.coord.indexes(CID)
    assert dict(altered.params) == mapped
    (file,) = await bench.coord.index_files(CID)
    assert file.params["mmap.enabled"] == "true"
    assert len(node.calls.of("build_index")) == 1
    assert bench.proxy.calls.of("invalidate_collection") == [CID, CID]
    coord = await bench.restart()
    assert dict((await coord.indexes(CID))[0].params) == mapped
    with pytest.raises(IndexNotFound):
        await coord.alter_index(CID, "other", {"mmap.enabled": "true"}, ())
    await coord.stop()
