"""The names of indexes, and the properties that change without a build."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import CID
from index_bench import HNSW, Bench

from elanus.core.errors import IndexConflict, IndexNotFound


async def test_an_index_without_a_name(tmp_path: Path) -> None:
    """It takes its field's name; or, if the field has an index, it is that one or a conflict."""
    bench = Bench(tmp_path)
    coord = await bench.start()
    await coord.create_index(CID, bench.field, "", HNSW)
    (index,) = await coord.indexes(CID)
    assert index.name == bench.field.name
    await coord.drop_index(CID, index.index_id)
    await coord.create_index(CID, bench.field, "named", HNSW)
    await coord.create_index(CID, bench.field, "", HNSW | {"mmap.enabled": "true"})
    assert [index.name for index in await coord.indexes(CID)] == ["named"]
    with pytest.raises(IndexConflict, match="at most one distinct index is allowed per field"):
        await coord.create_index(CID, bench.field, "", HNSW | {"M": "16"})
    with pytest.raises(IndexConflict, match="creating multiple indexes on same field is not supported"):
        await coord.create_index(CID, bench.field, "other", HNSW)
    await coord.stop()


async def test_properties_of_an_index_change_without_a_build(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.start()
    await bench.create()
    (before,) = await bench.coord.indexes(CID)
    await bench.coord.alter_index(CID, "v0", {"mmap.enabled": "true"}, ())
    (index,) = await bench.coord.indexes(CID)
    assert (index.index_id, dict(index.params)) == (before.index_id, HNSW | {"mmap.enabled": "true"})
    await bench.coord.create_index(CID, bench.field, "v0", HNSW)
    await bench.coord.alter_index(CID, "v0", {}, ("mmap.enabled",))
    (index,) = await bench.coord.indexes(CID)
    assert dict(index.params) == HNSW
    with pytest.raises(IndexNotFound, match="other"):
        await bench.coord.alter_index(CID, "other", {"mmap.enabled": "true"}, ())
    await bench.coord.stop()
