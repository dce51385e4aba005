"""The rows of a snapshot as Arrow batches for other engines."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from snapshot_world import World, vectors

from elanus.core.errors import FieldNotFound, InvalidParameter
from elanus.spark.rows import rows_of


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.add([1, 2, 3], vectors(3))
    made.add([11, 12], vectors(2, 6))
    made.delete(20, 2, 11)
    return made


def test_live_rows_of_all_segments(world: World) -> None:
    table = rows_of(world.snapshot, world.store.url).read_all()
    assert table.column_names == ["id", "price", "v"]
    assert table.column("id").to_pylist() == [1, 3, 12]
    assert table.column("v").to_pylist()[2] == world.vectors[12].tolist()
    some = rows_of(world.snapshot, world.store.url, ("price",), "id > 2")
    assert some.read_all().to_pylist() == [{"price": 2}, {"price": 1}]


def test_scalars_are_read_without_the_vectors(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()
    read = pq.ParquetFile.read_row_group

    def read_row_group(self: pq.ParquetFile, group: int, columns: list[str], **options: object) -> object:
        asked.update(columns)
        return read(self, group, columns=columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", read_row_group)
    rows_of(world.snapshot, world.store.url, ("id", "price"), "price >= 0").read_all()
    assert asked == {"id", "price", "Timestamp"}


def test_what_is_wrong_is_said_before_anything_is_read(world: World) -> None:
    with pytest.raises(FieldNotFound):
        rows_of(world.snapshot, world.store.url, ("nothing",))
    with pytest.raises(Exception, match="nonsense"):
        rows_of(world.snapshot, world.store.url, (), "nonsense > 1")
    world.store.delete(world.manifests[1].insert_logs[0].path)
    with pytest.raises(InvalidParameter, match=r"lease has ended.*lease_s"):
        rows_of(world.snapshot, world.store.url).read_all()
