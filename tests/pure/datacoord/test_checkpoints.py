"""Checkpoints of idle vchannels move together; those that may not are refused, and only those."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from data_bench import Bench, moved
from fakes import collection

from elanus.api.datacoord import CheckpointMove
from elanus.core.catalog import Checkpoint
from elanus.core.channels import pchannel_of


async def idle(tmp_path: Path, shards: int = 2) -> Bench:
    bench = Bench(tmp_path, collection(shards=shards))
    await bench.watched()
    return bench


async def move(bench: Bench, vchannel: str, milliseconds: int = 1000) -> CheckpointMove:
    known = await bench.recovery(vchannel)
    return CheckpointMove(bench.epoch, vchannel, known, moved(known, milliseconds))


async def test_they_move_in_one_change_and_one_sync_of_each_log(tmp_path: Path) -> None:
    bench = await idle(tmp_path, shards=8)
    vchannels = bench.collections[0].vchannels
    moves = tuple([await move(bench, vchannel) for vchannel in vchannels])
    synced: list[str] = []
    sync = bench.log.sync

    async def counted(pchannel: str) -> None:
        synced.append(pchannel)
        await sync(pchannel)

    bench.log.sync = counted  # type: ignore[method-assign]
    transactions = 0
    txn = bench.meta.txn

    async def counted_txn(*args: Any) -> int:
        nonlocal transactions
        transactions += 1
        return await txn(*args)

    bench.meta.txn = counted_txn  # type: ignore[method-assign]
    assert await bench.coord.move_checkpoints(moves) == {}
    assert [await bench.recovery(v) for v in vchannels] == [m.checkpoint for m in moves]
    assert sorted(synced) == sorted({pchannel_of(v) for v in vchannels})
    assert transactions == 1
    await bench.restart()
    assert [await bench.recovery(v) for v in vchannels] == [m.checkpoint for m in moves]
    await bench.coord.stop()


async def test_a_move_that_was_made_is_accepted_again_and_changes_nothing(tmp_path: Path) -> None:
    bench = await idle(tmp_path)
    moves = (await move(bench, bench.vchannel),)
    assert await bench.coord.move_checkpoints(moves) == {}
    before = await bench.snapshot()
    assert await bench.coord.move_checkpoints(moves) == {}
    assert await bench.snapshot() == before
    await bench.coord.stop()


async def test_one_that_is_refused_keeps_no_other_back(tmp_path: Path) -> None:
    bench = await idle(tmp_path)
    one, two = bench.collections[0].vchannels
    good = await move(bench, two)
    start = await bench.recovery(one)
    nowhere = Checkpoint(start.ts + 5, start.position, start.tick, start.epoch)  # type: ignore[arg-type]
    for bad, why in (
        (replace(await move(bench, one), epoch=bench.epoch - 1), "epoch"),
        (replace(await move(bench, one), expected=nowhere), "the range began at"),
        (await move(bench, one, milliseconds=-50), "ends before it begins"),
    ):
        refused = await bench.coord.move_checkpoints((bad, good))
        assert list(refused) == [one]
        assert why in refused[one]
        assert await bench.recovery(one) == start
        assert await bench.recovery(two) == good.checkpoint
    await bench.coord.stop()
