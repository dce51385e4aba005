"""Snapshots as a client's thread takes them: names become ids, and the reader's patience is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from fakes import CID, DEFAULT, OTHER, collection
from proxy_bench import Bench

from elanus.api.connector import SnapshotLease
from elanus.core.errors import CollectionNotFound, DeadlineExceeded, PartitionNotFound
from elanus.core.timestamps import Timestamp
from elanus.proxy.verbs.snapshots import Snapshots

LEASE = SnapshotLease(3, "file:///objects", "snapshots/3", Timestamp(9), 4000)


class FakeSnapshotApi:
    """``takes_s``: how long a snapshot takes."""

    def __init__(self) -> None:
        self.takes_s = 0.0
        self.taken: list[tuple[object, ...]] = []
        self.released: list[int] = []
        self.given_up = 0

    async def take_snapshot(self, *arguments: object) -> SnapshotLease:
        self.taken.append(arguments)
        try:
            await asyncio.sleep(self.takes_s)
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return LEASE

    async def release_snapshot(self, snapshot_id: int) -> None:
        self.released.append(snapshot_id)


def in_a_thread(work: Callable[[Snapshots, FakeSnapshotApi], None]) -> None:
    async def run() -> None:
        bench = Bench(collection(partitions=(DEFAULT, OTHER)))
        datacoord = FakeSnapshotApi()
        await bench.proxy.start()
        await asyncio.to_thread(work, Snapshots(lambda: bench.proxy, datacoord), datacoord)
        await bench.proxy.stop()

    asyncio.run(run())


def test_names_become_ids() -> None:
    def work(snapshots: Snapshots, datacoord: FakeSnapshotApi) -> None:
        assert snapshots.take("default", "c", ("p1", "p1"), 4000, None) == LEASE
        snapshots.take("default", "c", (), 5000, 1.0)
        snapshots.take("default", "c", (), 6000, 1.0, with_indexes=True)
        assert datacoord.taken == [
            (CID, (OTHER,), 4000, False),
            (CID, (), 5000, False),
            (CID, (), 6000, True),
        ]
        snapshots.release(3)
        assert datacoord.released == [3]

    in_a_thread(work)


def test_names_that_are_not_there() -> None:
    def work(snapshots: Snapshots, datacoord: FakeSnapshotApi) -> None:
        with pytest.raises(CollectionNotFound):
            snapshots.take("default", "nothing", (), 4000, None)
        with pytest.raises(PartitionNotFound):
            snapshots.take("default", "c", ("nothing",), 4000, None)
        assert datacoord.taken == []

    in_a_thread(work)


def test_a_snapshot_ends_with_its_readers_patience() -> None:
    def work(snapshots: Snapshots, datacoord: FakeSnapshotApi) -> None:
        datacoord.takes_s = 60.0
        with pytest.raises(DeadlineExceeded, match=r"no answer within 0\.05 s"):
            snapshots.take("default", "c", (), 4000, 0.05)
        snapshots.release(3)  # the loop has run since
        assert datacoord.given_up == 1

    in_a_thread(work)
