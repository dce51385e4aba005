"""A load whose record is written, though its caller got an error, is gone after a release."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes import CID, DEFAULT, OTHER, collection, manifest, recovery
from query_bench import Bench

from elanus.core.errors import Unavailable
from elanus.core.ids import PartitionID

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
