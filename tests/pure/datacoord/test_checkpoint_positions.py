"""The highest checkpoints, as processes that write the log read them from the metadata."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from data_bench import Bench
from fakes import collection, schema

from elanus.core.catalog import Checkpoint
from elanus.core.channels import pchannel_of
from elanus.core.ids import CollectionID
from elanus.core.timestamps import compose
from elanus.datacoord.checkpoint_positions import CheckpointPositions


def at(position: int) -> Checkpoint:
    return Checkpoint(compose(100_000 + position), position, compose(1), 1)


async def test_the_highest_checkpoint_of_each_pchannel_counts(tmp_path: Path) -> None:
    other = collection(schema("d"), CollectionID(500))
    bench = Bench(tmp_path, collection(), other)
    await bench.watched()
    [mine], [others] = (known.vchannels for known in bench.collections)
    pchannel = pchannel_of(mine)
    held = CheckpointPositions(bench.meta)
    assert (await held(), pchannel_of(others)) == ({pchannel: 1}, pchannel)
    await bench.commit(checkpoint=at(70))
    await bench.commit(vchannel=others, checkpoint=at(40))
    await asyncio.sleep(10)  # many ask at the same time, and share what was read a moment ago
    assert await asyncio.gather(held(), held()) == [{pchannel: 70}] * 2
    state = bench.coord.context.state
    dropped = state.vchannel(mine)
    assert dropped is not None
    await state.put(vchannels=[replace(dropped, dropped=compose(200_000))])
    await asyncio.sleep(10)
    assert await held() == {pchannel: 40}
    await bench.coord.stop()
