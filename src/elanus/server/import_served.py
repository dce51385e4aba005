"""When an import is complete: its rows are committed and reads find them as fast as any others."""

from __future__ import annotations

from collections.abc import Sequence

from elanus.api.datacoord import DataCoordApi
from elanus.api.indexcoord import IndexCoordApi
from elanus.api.querycoord import QueryCoordApi, ReplicaStatus
from elanus.api.rootcoord import RootCoordApi
from elanus.core.errors import CollectionNotLoaded
from elanus.core.imports import ImportTask
from elanus.core.segments import SegmentState
from elanus.core.timestamps import MAX_TIMESTAMP


class ServedImports:
    """Asks the coordinators. Segments that were dropped since the commit do not count.

    No segment is compacted before its import is complete (`elanus.datacoord.planner`).
    """

    def __init__(
        self, data: DataCoordApi, index: IndexCoordApi, query: QueryCoordApi, root: RootCoordApi
    ) -> None:
        self._root = root
        self._data = data
        self._index = index
        self._query = query

    async def is_served(self, task: ImportTask) -> bool:
        """Whether a committed task's segments have their indexes and are served, where they are to be loaded.

        Served means: by every replica that has nodes (at least one), to reads as of what those nodes have
        reached. Deletes count wherever anything is to be loaded: they concern partitions other than the
        task's, also after that one was dropped.

        Raises `elanus.core.errors.Unavailable` while a coordinator restarts.
        """
        found = await self._data.segments_by_id(task.segments)
        live = [s for s in found if s.state is SegmentState.FLUSHED]
        if await self._index.unbuilt(task.collection_id, tuple(s.segment_id for s in live)):
            return False
        loads = await self._query.loads(task.collection_id)
        loaded = {partition_id for load in loads for partition_id in load.percentages}
        wanted = {s.segment_id for s in live if s.partition_id in loaded}
        if not wanted and not (task.deltas and loaded):
            return True
        try:
            replicas = [r for r in await self._query.replicas(task.collection_id) if r.nodes]
        except CollectionNotLoaded:
            return False  # it is loading
        serving = await self._query.serving(task.collection_id)
        seen = {(s.segment_id, node_id) for node_id, s in serving if s.sealed and s.visible}
        if not await self._are_deleted(task, replicas):
            return False
        return bool(replicas) and all((s, r.info.sealed.get(s)) in seen for r in replicas for s in wanted)

    async def _are_deleted(self, task: ImportTask, replicas: Sequence[ReplicaStatus]) -> bool:
        """Whether reads of now see the deletes of the task: every replica's version names them, and their
        moments have passed."""
        if not task.deltas:
            return True
        moments = [r.info.deletes.get(path, MAX_TIMESTAMP) for r in replicas for path in task.deltas]
        return max(moments, default=MAX_TIMESTAMP) < await self._root.alloc_timestamp(1)
