"""Properties of an index: set and deleted later, without another build."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import CID
from test_builds import with_an_index

from elanus.core.errors import IndexNotFound


async def test_properties_of_an_index_change_nothing_but_themselves(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    (index,) = await bench.coord.indexes(CID)
    await bench.coord.alter_index(CID, index.index_id, {"mmap.enabled": "true", "warmup": "sync"}, ())
    (altered,) = await bench.coord.indexes(CID)
    assert altered == replace(index, properties={"mmap.enabled": "true", "warmup": "sync"})
    await bench.coord.alter_index(CID, index.index_id, {}, ("mmap.enabled",))
    (altered,) = await bench.coord.indexes(CID)
    assert dict(altered.properties) == {"warmup": "sync"}
    assert bench.proxy.calls.of("invalidate_collection") == [CID] * 3
    await bench.coord.drop_index(CID, index.index_id)
    with pytest.raises(IndexNotFound):
        await bench.coord.alter_index(CID, index.index_id, {}, ("warmup",))
    await bench.coord.stop()
