"""A field that was added: older rows, growing and sealed, have nulls in it."""

from __future__ import annotations

from node_world import World, scenario

from elanus.core.field_changes import with_added_field
from elanus.core.ids import FieldID
from elanus.core.schema import DataType, FieldSchema

NUMBER = FieldSchema(FieldID(0), "extra", DataType.INT64, nullable=True)


@scenario()
async def test_older_rows_are_found_by_their_nulls(world: World) -> None:
    await world.insert([(1, 1), (2, 2)])
    await world.tick()
    world.seal()
    world.flush()
    await world.hand_off(world.finished())
    await world.insert([(3, 3)])
    await world.tick()
    assert world.keys() == [1, 2, 3]

    world.schema = with_added_field(world.schema, NUMBER)
    await world.node.load_collection(world.load_request())
    await world.node.watch_vchannel(world.watch_request())
    await world.hand_off(world.finished())
    assert world.keys() == [1, 2, 3]
    assert world.keys("extra is null") == [1, 2, 3]
    assert world.keys("extra > 0") == []
