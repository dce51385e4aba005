"""A loaded collection whose definition changes in what readers do not look at: it is served as before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from node_world import World

from elanus.core.field_changes import with_altered_field
from elanus.core.functions import TEXT_EMBEDDING, Function, with_outputs_marked
from elanus.core.schema import CollectionSchema

Change = Callable[[CollectionSchema], CollectionSchema]
EMBEDDING = Function("embedding", TEXT_EMBEDDING, ("tag",), ("vector",), params={"provider": "openai"})
"""Its values are in the log: a proxy computes them."""


def with_functions(schema: CollectionSchema, *functions: Function) -> CollectionSchema:
    return replace(schema, fields=with_outputs_marked(schema.fields, functions), functions=functions)


@pytest.mark.parametrize(
    "change",
    [
        lambda schema: replace(schema, name="another"),
        lambda schema: replace(schema, description="what it is for"),
        lambda schema: with_altered_field(schema, "tag", {"max_length": "99"}, ()),
        lambda schema: with_functions(schema, EMBEDDING),
        lambda schema: with_functions(schema, replace(EMBEDDING, params={"provider": "tei"})),
    ],
    ids=["name", "description", "max_length", "embedding", "other embedding"],
)
async def test_what_is_served_stays_while_one_more_segment_comes(tmp_path: Path, change: Change) -> None:
    """Querycoord has the node load the rest of a version, and counts on what the node serves."""
    world = World(tmp_path)
    await world.start()
    await world.insert([(1, 1), (2, 2)])
    await world.tick()
    world.seal()
    (first,) = world.flush()
    await world.hand_off([first])
    await world.insert([(3, 3)])
    await world.tick()

    world.schema = change(world.schema)
    world.seal()
    (second,) = world.flush()
    await world.node.load_collection(world.load_request())
    await world.node.watch_vchannel(world.watch_request())
    assert world.keys() == [1, 2, 3]
    await world.hand_off([second])
    assert world.keys() == [1, 2, 3]
