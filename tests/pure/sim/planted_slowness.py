"""Bugs that show when something is slow or full: objects, a query node, a pchannel, the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from elanus.core.segments import SegmentState
from elanus.core.timestamps import Timestamp
from elanus.datacoord import flushing
from elanus.datacoord.flushing import Flushing
from elanus.proxy.fanout.pending import Gathering
from elanus.proxy.fanout.served import ServiceTimes
from elanus.proxy.role import writes
from elanus.proxy.role.queues import DmQueue
from elanus.querynode.key_ranges import visits_to
from elanus.querynode.loaded_collection import LoadedCollection
from elanus.querynode.loading import Loading
from elanus.sim import plan

_DELETED_IS_SEEN = frozenset({"DEL1", "VIS2"})


def _in_clusters(plant: Callable[[pytest.MonkeyPatch], None]) -> Callable[[pytest.MonkeyPatch], None]:
    """Hunted where it can be found: every seed has several query nodes, and each lags now and then."""

    def planted(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(plan, "_READINGS", tuple(r for r in plan._READINGS if r.is_cluster))
        patch.setattr(plan, "only_lags", lambda seed: True)
        plant(patch)

    planted.__doc__ = plant.__doc__
    return planted


def deletes_looked_up_before_the_load(patch: pytest.MonkeyPatch) -> None:
    """A segment misses the deletes that come while its files are read."""
    load, known = Loading.load, {}

    async def early(self: Loading, collection: LoadedCollection, request: Any) -> None:
        deletes = collection.check_loadable(request).deletes
        known[request.manifest.segment_id] = list(deletes.since(request.checkpoint.ts))
        await load(self, collection, request)

    async def stage(self: LoadedCollection, segment: Any, request: Any) -> None:
        self.check_loadable(request)
        self._held.join(segment)
        await self.applier.apply(visits_to([segment], known[segment.segment_id]))
        self.release_segments(self._held.stage(segment))

    patch.setattr(Loading, "load", early)
    patch.setattr(LoadedCollection, "stage", stage)


@_in_clusters
def weak_reads_as_of_the_newest_node(patch: pytest.MonkeyPatch) -> None:
    """A proxy takes the newest service time of a replica's nodes for what all of them serve."""
    take = Gathering.take

    def newest(self: Gathering, result: Any) -> None:
        take(self, result)
        serving = [r.service_ts for r in self._results.values() if r.vchannels or r.segments]
        if self.service_ts and serving:
            self.service_ts = max(serving)

    patch.setattr(Gathering, "take", newest)


@_in_clusters
def weak_reads_sent_to_any_replica(patch: pytest.MonkeyPatch) -> None:
    """A weak read goes to the next replica, whether or not that one has reported what it serves."""
    patch.setattr(plan, "_READINGS", tuple(r for r in plan._READINGS if r.replicas > 1))

    def rotated(self: ServiceTimes, replicas: Any, turn: int, read_ts: Timestamp) -> list[Any]:
        first = turn % len(replicas)
        return [*replicas[first:], *replicas[:first]]

    patch.setattr(ServiceTimes, "in_turn", rotated)


def partly_written_acknowledged(patch: pytest.MonkeyPatch) -> None:
    """A write is acknowledged when any pchannel has stored its part."""
    append = writes.LogWriter.append

    async def hopeful(self: writes.LogWriter, turn: Any, messages: Any) -> None:
        try:
            await append(self, turn, messages)
        except writes.PartlyWritten:
            return

    patch.setattr(writes.LogWriter, "append", hopeful)


def refused_write_stays_unfinished(patch: pytest.MonkeyPatch) -> None:
    """The time ticks wait forever for a write that the log has refused."""
    run = DmQueue.run

    async def kept(self: DmQueue, name: str, pchannels: Any, write: Any) -> Timestamp:
        async def watched(turn: Any) -> None:
            try:
                await write(turn)
            except writes.ElanusError:
                self._writes.add(turn.ts, pchannels)
                raise

        return await run(self, name, pchannels, watched)

    patch.setattr(DmQueue, "run", kept)


def sealed_for_memory_at_once(patch: pytest.MonkeyPatch) -> None:
    """A segment that is sealed for memory takes rows no longer, whatever was allocated in it."""
    patch.setattr("elanus.sim.policies._GROWING_SOFT_BYTES", (4000,))

    async def at_once(self: Flushing, cause: str, segment_ids: Iterable[Any]) -> None:
        found = [self._state.find_segment(segment_id) for segment_id in segment_ids]
        growing = [info for info in found if info is not None and info.state is SegmentState.GROWING]
        now = await self._rootcoord.alloc_timestamp(1)
        await self._state.put([flushing._sealed(info, now) for info in growing])

    patch.setattr(Flushing, "seal_for", at_once)


_BEHIND_A_SEAL = frozenset({"LIVE1", "SEG1", "SEG3", "VIS1"})
BUGS = (
    ("deletes looked up before the load", deletes_looked_up_before_the_load, _DELETED_IS_SEEN, 12, 2),
    ("weak reads as of the newest node", weak_reads_as_of_the_newest_node, frozenset({"CON2"})),
    ("weak reads sent to any replica", weak_reads_sent_to_any_replica, frozenset({"CON2"}), 12, 20),
    ("partly written acknowledged", partly_written_acknowledged, frozenset({"DUR1"})),
    ("refused write stays unfinished", refused_write_stays_unfinished, frozenset({"LIVE1"}), 12, 2),
    (
        "sealed for memory at once",
        sealed_for_memory_at_once,
        frozenset({"SEG3", "LIVE1", "SEG1", "VIS1"}),
        12,
        3,
    ),
)
