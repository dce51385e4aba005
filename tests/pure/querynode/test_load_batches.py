"""Loads that wait for their turn are read together: those of one load of a collection, and no others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from fakes import CID, inline, manifest, settle
from node_world import COLLECTION, World, breathe, scenario

from elanus.api.querynode import LoadSegment
from elanus.core.errors import CollectionNotLoaded
from elanus.querynode.load_batches import LoadBatches
from elanus.querynode.loaded_collection import LoadedCollection
from elanus.querynode.sealed import SealedSegment


def request(number: int) -> LoadSegment:
    return cast(LoadSegment, SimpleNamespace(manifest=manifest(number), indexes=()))


class Loaded:
    """A collection with one turn, which is taken."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.collection_id = CID
        self.loads = asyncio.Semaphore(0)

    def check_loadable(self, of: LoadSegment) -> None:
        """It always is."""

    def read(self, of: LoadSegment) -> SealedSegment:
        return cast(SealedSegment, f"{self.name} {of.manifest.segment_id}")


async def test_a_segment_is_read_as_the_load_that_asks_for_it_needs_it() -> None:
    """The collection was released and loaded again, with other fields, while segments waited to be read."""
    batches, former, present = LoadBatches(), Loaded("former"), Loaded("present")

    def loading(of: Loaded, number: int) -> asyncio.Task[Any]:
        asked = cast(LoadedCollection, of)
        return asyncio.create_task(batches.load(asked, request(number), of.read, inline))

    loads = [loading(former, 1), loading(former, 2), loading(present, 3), loading(present, 4)]
    await settle()
    for turn in (former, present):
        turn.loads.release()
    assert await asyncio.gather(*loads) == ["former 1", "former 2", "present 3", "present 4"]
    assert not batches._open


class Held:
    """An offload that keeps its first piece of work until it is let go."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.begun = 0

    async def __call__(self, function: Callable[..., Any], /, *args: Any) -> Any:
        self.begun += 1
        if self.begun == 1:
            await self.go_on.wait()
        return function(*args)


@scenario()
async def test_a_load_does_not_wait_for_what_is_still_read_for_the_load_before(world: World) -> None:
    await world.insert([(1, 1)])
    await world.stamp_and_tick()
    world.seal()
    (flushed,) = world.flush()
    held = world.node._loading.offload = Held()  # type: ignore[assignment]
    former = asyncio.create_task(world.node.load_segment(world.segment_request(flushed)))
    await breathe()
    assert held.begun == 1
    await world.node.release_collection(COLLECTION)
    await world.start()
    assert [s.segment_id for s in (await world.node.status()).segments] == [flushed]
    held.go_on.set()
    assert isinstance((await asyncio.gather(former, return_exceptions=True))[0], CollectionNotLoaded)
    assert [s.segment_id for s in (await world.node.status()).segments] == [flushed]
