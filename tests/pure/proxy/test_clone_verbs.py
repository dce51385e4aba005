"""Snapshots and clones as a client's thread asks for them: names become ids, of dropped collections too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from fakes import CID, collection
from proxy_bench import Bench

from elanus.api.rootcoord import CloneRequest
from elanus.api.snapshots import CloneSource, NamedSnapshot, NewSnapshot, PinnedCollection
from elanus.core.catalog import Collection, Origin
from elanus.core.errors import (
    CollectionNotFound,
    DeadlineExceeded,
    InvalidParameter,
    JobNotFound,
    SnapshotNotFound,
)
from elanus.core.ids import CollectionID, DatabaseID
from elanus.core.pins import Pin, restore_key
from elanus.core.privileges import ANY
from elanus.core.timestamps import Timestamp

GONE = CollectionID(77)
LIVE = Pin(5, CID, "s/5", 0, "daily", "d", Timestamp(9))
OLD = Pin(4, GONE, "s/4", 0, "old", "", Timestamp(8))


class Data:
    """The part of datacoord that the verbs call."""

    def __init__(self) -> None:
        self.pins = [OLD, LIVE]
        self.asked: list[object] = []
        self.dropped: tuple[Collection, ...] = ()
        self.pinned: dict[int, PinnedCollection] = {}

    async def create_snapshot(self, request: NewSnapshot) -> Pin:
        self.asked.append(request)
        return LIVE

    async def named_snapshots(self) -> tuple[Pin, ...]:
        return tuple(self.pins)

    async def named_snapshot(self, pin_id: int) -> NamedSnapshot:
        (pin,) = (pin for pin in self.pins if pin.pin_id == pin_id)
        return NamedSnapshot(pin, f"file:///{pin.path}", 1, collection().name, ("_default",), 12)

    async def drop_snapshot(self, collection_id: CollectionID, name: str) -> None:
        self.asked.append((collection_id, name))

    async def pin_snapshot(self, pin_id: int, expires_ms: int) -> Pin:
        self.asked.append((pin_id, expires_ms > 0))
        return replace(LIVE, pin_id=6)

    async def unpin_snapshot(self, pin_id: int) -> None:
        self.asked.append(pin_id)

    async def pinned_collection(self, pin_id: int) -> PinnedCollection:
        if pin_id not in self.pinned:
            raise SnapshotNotFound(f"snapshot not found[snapshot={pin_id}]")
        return self.pinned[pin_id]

    async def dropped_collections(self) -> tuple[Collection, ...]:
        return self.dropped


def in_a_thread(work: Callable[[Bench, Data], None]) -> None:
    async def run() -> None:
        bench, data = Bench(collection()), Data()
        bench.proxy.coordinators = replace(bench.proxy.coordinators, data=data)  # type: ignore[arg-type]

        async def clone(request: CloneRequest) -> Collection:
            data.asked.append(request)
            origin = Origin(request.job_id, "daily", "c", CID, "s/5", 5, Timestamp(9), (), 1, 2, True)
            made = replace(collection(), collection_id=CollectionID(8), name=request.name, origin=origin)
            bench.root.collections[made.collection_id] = made
            return made

        bench.root.clone_collection = clone  # type: ignore[attr-defined]
        await bench.proxy.start()
        await asyncio.to_thread(work, bench, data)
        await bench.proxy.stop()

    asyncio.run(run())


def test_snapshots_of_a_collection_and_of_one_that_had_its_name() -> None:
    name = collection().name

    def work(bench: Bench, data: Data) -> None:
        verbs = bench.verbs
        verbs.create_snapshot("default", name, "daily", "d")
        assert data.asked.pop() == NewSnapshot(CID, "daily", "d")
        assert verbs.list_snapshots("default", name) == ["old", "daily"]
        assert verbs.list_snapshots("default") == ["old", "daily"]
        view = verbs.describe_snapshot("default", name, "old")
        assert (view.moment, view.location, view.bytes) == (8, "file:///s/4", 12)
        verbs.drop_snapshot("default", name, "old")
        assert data.asked.pop() == (GONE, "old")
        verbs.drop_snapshot("default", name, "none")
        assert data.asked == []
        assert verbs.pin_snapshot("default", name, "daily", 60) == 6
        assert data.asked.pop() == (5, True)
        verbs.unpin_snapshot(6)
        assert data.asked.pop() == 6
        with pytest.raises(SnapshotNotFound, match="snapshot=none"):
            verbs.describe_snapshot("default", name, "none")
        with pytest.raises(CollectionNotFound):
            verbs.list_snapshots("default", "other")
        with pytest.raises(InvalidParameter, match="Invalid snapshot name"):
            verbs.create_snapshot("default", name, "1st", "")

    in_a_thread(work)


def test_a_snapshot_is_waited_for_no_longer_than_its_client_waits() -> None:
    def work(bench: Bench, data: Data) -> None:
        ended = threading.Event()

        async def waits_for_files(request: NewSnapshot) -> Pin:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return LIVE

        data.create_snapshot = waits_for_files  # type: ignore[method-assign]
        with pytest.raises(DeadlineExceeded):
            bench.verbs.create_snapshot("default", collection().name, "daily", "", timeout_s=0.001)
        assert ended.wait(60), "datacoord's wait is cancelled"

    in_a_thread(work)


def test_a_restore_a_clone_and_an_undrop_are_clones_of_different_sources() -> None:
    name = collection().name

    def work(bench: Bench, data: Data) -> None:
        verbs = bench.verbs
        job = verbs.restore_snapshot("default", name, "daily", "default", "copy")
        request = data.asked.pop()
        assert request == CloneRequest("default", "copy", CloneSource(CID, 5), job.job_id)
        assert verbs.restore_jobs("default") == [job]
        assert verbs.restore_jobs("default", "other") == []
        assert verbs.restore_job(job.job_id) == job
        with pytest.raises(JobNotFound):
            verbs.restore_job(3)
        verbs.clone_collection("default", name, "default", "copy", Timestamp(7))
        assert isinstance(request := data.asked.pop(), CloneRequest)
        assert request.source == CloneSource(CID, moment=Timestamp(7))
        with pytest.raises(CollectionNotFound, match="drop_tolerance"):
            verbs.undrop_collection("default", "gone")
        first = replace(collection(), collection_id=GONE, name="gone")
        data.dropped = (first, replace(first, collection_id=CollectionID(78)))
        verbs.undrop_collection("default", "gone")
        assert isinstance(request := data.asked.pop(), CloneRequest)
        assert (request.name, request.source) == ("gone", CloneSource(CollectionID(78)))

    in_a_thread(work)


def test_where_a_pin_is_from() -> None:
    def work(bench: Bench, data: Data) -> None:
        stray = replace(collection(), database_id=DatabaseID(99))
        received = replace(LIVE, name="", received=restore_key("shop", "books", "k/1"))
        data.pinned = {
            5: PinnedCollection(LIVE, collection()),
            6: PinnedCollection(received, None),
            7: PinnedCollection(OLD, None),
            8: PinnedCollection(OLD, stray),
        }
        places = {pin_id: bench.verbs.place_of_pin(pin_id) for pin_id in (5, 6, 7, 8, 9)}
        assert places == {
            5: ("default", collection().name),
            6: ("shop", "books"),  # a restore's, before its collection is made
            7: (ANY, ""),  # of a collection that is gone
            8: (ANY, ""),  # in a database that is gone
            9: None,
        }

    in_a_thread(work)
