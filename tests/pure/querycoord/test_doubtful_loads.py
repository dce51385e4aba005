"""A load whose record is written, though its caller got an error, is gone after a release. And resource
groups are as they are recorded, also after calls that were cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from fakes import CID, DEFAULT, OTHER, collection, manifest, recovery
from query_bench import NODE, Bench

from elanus.core.errors import Unavailable
from elanus.core.ids import PartitionID
from elanus.core.resource_groups import DEFAULT_RESOURCE_GROUP
from elanus.querycoord.state import LoadState

OF = collection(partitions=(DEFAULT, OTHER))


async def load_in_doubt(bench: Bench, *partition_ids: PartitionID) -> None:
    """The store writes the record, and its answer is lost."""
    txn = bench.meta.txn

    async def answer_lost(*args: Any, **kwargs: Any) -> int:
        await txn(*args, **kwargs)
        raise Unavailable("the answer was lost")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.meta, "txn", answer_lost)
        with pytest.raises(Unavailable):
            await bench.coord.load(CID, partition_ids, 1)


async def begun() -> Bench:
    bench = Bench(OF)
    bench.set_data(recovery(OF, manifest(1), manifest(2, partition_id=OTHER)))
    await bench.start()
    return bench


async def test_a_successor_does_not_load_what_was_released() -> None:
    bench = await begun()
    await load_in_doubt(bench)
    await bench.coord.release(CID, ())
    await bench.restart()
    await asyncio.sleep(1)
    assert await bench.coord.loads() == ()
    assert bench.node.held == {}
    await bench.coord.stop()


async def test_a_successor_does_not_load_partitions_that_were_released() -> None:
    bench = await begun()
    await bench.coord.load(CID, (DEFAULT,), 1)
    await asyncio.sleep(1)
    await load_in_doubt(bench, OTHER)
    await bench.coord.release(CID, (OTHER,))
    await bench.restart()
    await asyncio.sleep(1)
    assert await bench.percentages() == {DEFAULT: 100}
    assert bench.node.served() == {1}
    await bench.coord.stop()


async def test_resource_groups_are_as_recorded_after_calls_that_were_cancelled() -> None:
    bench = await begun()
    txn = bench.meta.txn

    async def cancelled(call: Coroutine[Any, Any, None]) -> None:
        """The caller goes when the store has written the records and not yet answered."""
        written, answered = asyncio.Event(), asyncio.Event()

        async def slow(*args: Any, **kwargs: Any) -> int:
            revision = await txn(*args, **kwargs)
            written.set()
            await answered.wait()
            return revision

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bench.meta, "txn", slow)
            calling = asyncio.ensure_future(call)
            await written.wait()
            calling.cancel()
            answered.set()
            with pytest.raises(asyncio.CancelledError):
                await calling

    async def names() -> tuple[list[str], tuple[str, ...]]:
        recorded = [group.name for group in await LoadState(bench.meta).groups()]
        return recorded, await bench.coord.list_resource_groups()

    await bench.coord.load(CID, (), 1)
    await cancelled(bench.coord.create_resource_group("a"))
    assert await names() == (["a"], (DEFAULT_RESOURCE_GROUP, "a"))
    await cancelled(bench.coord.transfer_node(DEFAULT_RESOURCE_GROUP, "a", 1))
    assert (await bench.coord.describe_resource_group("a")).nodes == (NODE,)
    await cancelled(bench.coord.transfer_replica(CID, DEFAULT_RESOURCE_GROUP, "a", 1))
    assert [r.group for r in await bench.coord.replicas(CID)] == ["a"]
    await bench.coord.release(CID, ())
    await bench.coord.transfer_node("a", DEFAULT_RESOURCE_GROUP, 1)
    await cancelled(bench.coord.drop_resource_group("a"))
    assert await names() == ([], (DEFAULT_RESOURCE_GROUP,))
    await bench.coord.stop()
