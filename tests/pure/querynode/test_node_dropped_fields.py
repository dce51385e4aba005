"""Fields that were dropped and functions that were added: older rows, growing and sealed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from node_rows import Row, schema_of
from node_world import World
from test_text_search import SCHEMA, TextWorld

from elanus.api.querynode import LoadCollection
from elanus.core.dropped_fields import with_dropped_field
from elanus.core.field_changes import with_added_field
from elanus.core.schema import CollectionSchema, DataType

FIRST = schema_of(DataType.INT64)


async def load_again(world: World, schema: CollectionSchema) -> None:
    world.schema = schema
    world.filters.clear()
    await world.node.load_collection(world.load_request())
    await world.node.watch_vchannel(world.watch_request())
    await world.hand_off(world.finished())


class Changing(World):
    """A world whose rows have the columns of its schema, in their order."""

    def batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        schema, self.schema = self.schema, FIRST
        batch = super().batch(rows)
        self.schema = schema
        columns = [batch.column(f.name) for f in schema.fields]
        return pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)

    def found(self, text: str = "") -> list[int]:
        keys: list[int] = self.keys(text, output_fields=())
        return keys


async def test_older_rows_are_there_without_the_field(tmp_path: Path) -> None:
    world = Changing(tmp_path)
    await world.start()
    await world.insert([(1, 1), (2, 2)])
    await world.tick()
    world.seal()
    world.flush()
    await world.hand_off(world.finished())
    await world.insert([(3, 3)])
    await world.tick()
    assert world.found("value > 1") == [2, 3]

    value = world.schema.field("value")
    less = with_dropped_field(world.schema, "value")
    await load_again(world, less)
    assert world.found() == [1, 2, 3]
    again = with_added_field(less, replace(value, nullable=True))
    await load_again(world, again)
    assert world.found() == [1, 2, 3]
    assert world.found("value is null") == [1, 2, 3]
    await world.insert([(4, 4)])
    await world.tick()
    assert world.found("value > 1") == [4]
    world.seal()
    world.flush()
    await world.hand_off(world.finished())
    assert world.found("value is null") == [1, 2, 3]
    assert world.found("value > 1") == [4]
    world.node.invariants()
    await world.node.stop()


class LaterFunction(TextWorld):
    """A world whose first rows are written without the function's field."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        fields = tuple(f for f in SCHEMA.fields if f.name != "vector")
        self.schema = replace(SCHEMA, fields=fields, functions=())

    def load_request(self, partitions: tuple[int, ...] | None = None) -> LoadCollection:
        request = super().load_request(partitions)
        known = self.schema.by_id
        return replace(request, indexes=tuple(i for i in request.indexes if i.field_id in known))

    def batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        return super().batch(rows).select([f.name for f in self.schema.fields])


@pytest.mark.parametrize("flushed", [False, True])
async def test_older_texts_are_found_by_a_function_that_is_added(flushed: bool, tmp_path: Path) -> None:
    world = LaterFunction(tmp_path)
    await world.start()
    await world.insert([(1, 1), (2, 5), (3, 0)])
    await world.tick()
    if flushed:
        world.seal()
        world.flush()
        await world.hand_off(world.finished())
    later = tuple(replace(f, is_added=f.name == "vector") for f in SCHEMA.fields)
    await load_again(world, replace(SCHEMA, fields=later))
    assert world.scores().keys() == {1, 2}
    world.check({})
    await world.insert([(4, 1)])
    await world.tick()
    world.check({})
    world.node.invariants()
    await world.node.stop()
