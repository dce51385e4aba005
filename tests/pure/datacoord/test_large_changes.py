"""A change of many records that the store decides is complete, although writing it out fails at first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from data_bench import Bench
from fakes import collection, settle
from structlog.testing import capture_logs
from test_data_nodes import NOTIFIED_S, Member, epoch_of, join

from elanus.core.errors import Unavailable
from elanus.meta.memory import MemoryMeta
from elanus.meta.port import Compare, Delete, Put

SHARDS = 250
"""More vchannels than one transaction changes, for each of two nodes as well."""


class Electing(MemoryMeta):
    """While ``armed``, refuses the first transaction after one that decides a large change."""

    def __init__(self) -> None:
        super().__init__()
        self.armed = False
        self._has_decided = False

    async def txn(self, operations: Sequence[Put | Delete], compares: Sequence[Compare] = ()) -> int:
        if self._has_decided:
            self.armed = self._has_decided = False
            raise Unavailable("etcd elects a leader")
        revision = await super().txn(operations, compares)
        self._has_decided = self.armed and any(
            isinstance(op, Put) and op.key == "datacoord/decided" for op in operations
        )
        return revision


async def started(tmp_path: Path) -> tuple[Bench, Electing]:
    bench, meta = Bench(tmp_path, collection(shards=SHARDS)), Electing()
    bench.meta = meta
    await bench.start()
    return bench, meta


def followed(bench: Bench, member: Member) -> bool:
    """Whether the node follows all that it owns, under the epochs in force."""
    return member.node.following == {v: epoch_of(bench, v) for v in member.owned()}


async def test_vchannels_of_a_dead_node_are_followed_although_the_write_out_failed(tmp_path: Path) -> None:
    bench, meta = await started(tmp_path)
    await bench.coord.watch_channels(bench.collections[0])
    first, second = await join(bench, 7), await join(bench, 8)
    await settle()
    meta.armed = True
    with capture_logs() as logs:
        first.leave()
        await asyncio.sleep(NOTIFIED_S)
    assert not meta.armed
    assert len(second.owned()) == SHARDS
    assert followed(bench, second)
    (failed,) = [entry for entry in logs if entry["event"] == "large change not written out yet"]
    assert "elects a leader" in failed["error"]
    await bench.coord.stop()


async def test_a_new_collection_is_followed_although_the_write_out_failed(tmp_path: Path) -> None:
    bench, meta = await started(tmp_path)
    node = await join(bench, 7)
    meta.armed = True
    await bench.coord.watch_channels(bench.collections[0])
    await asyncio.sleep(NOTIFIED_S)
    assert not meta.armed
    assert len(node.owned()) == SHARDS
    assert followed(bench, node)
    await bench.restart()
    assert len(list(bench.coord.context.state.vchannels())) == SHARDS
    assert await meta.get("datacoord/decided") is None
    await bench.coord.stop()


async def test_a_new_collection_is_followed_although_the_call_was_cancelled_meanwhile(tmp_path: Path) -> None:
    bench, meta = await started(tmp_path)
    node = await join(bench, 7)
    released = asyncio.Event()
    write = meta.txn

    async def slowly(operations: Sequence[Put | Delete], compares: Sequence[Compare] = ()) -> int:
        await released.wait()
        return await write(operations, compares)

    meta.txn = slowly  # type: ignore[method-assign]
    call = asyncio.create_task(bench.coord.watch_channels(bench.collections[0]))
    await settle()
    call.cancel()
    await settle()
    released.set()
    await asyncio.wait([call])
    assert call.cancelled()
    await asyncio.sleep(NOTIFIED_S)
    assert len(node.owned()) == SHARDS
    assert followed(bench, node)
    await bench.coord.stop()
