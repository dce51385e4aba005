"""When an import is complete: its rows are not only committed, reads find them as fast as any others."""

from __future__ import annotations

from elanus.core.errors import CollectionNotLoaded
from elanus.core.imports import ImportTask
from elanus.core.segments import SegmentState
from elanus.rpc.datacoord import DataCoordApi
from elanus.rpc.indexcoord import IndexCoordApi
from elanus.rpc.querycoord import QueryCoordApi


class ServedImports:
    """Asks the coordinators. Segments that were dropped since the commit do not count.

    None is compacted before its import is complete (`elanus.datacoord.planner`).
    """

    def __init__(self, data: DataCoordApi, index: IndexCoordApi, query: QueryCoordApi) -> None:
        self._data = data
        self._index = index
        self._query = query

    async def is_served(self, task: ImportTask) -> bool:
        """Whether a committed task's segments have their indexes and, if they are to be loaded, are served.

        That is, by every replica that has nodes (one at least), to reads as of what those have reached.

        Raises `elanus.core.errors.Unavailable` while a coordinator restarts.
        """
        found = await self._data.segments_by_id(task.segments)
        live = {s.segment_id for s in found if s.state is SegmentState.FLUSHED}
        if await self._index.unbuilt(task.collection_id, tuple(live)):
            return False
        loads = await self._query.loads(task.collection_id)
        if not any(task.partition_id in load.percentages for load in loads):
            return True
        try:
            replicas = [r for r in await self._query.replicas(task.collection_id) if r.nodes]
        except CollectionNotLoaded:
            return False  # it is loading
        serving = await self._query.serving(task.collection_id)
        seen = {(s.segment_id, node_id) for node_id, s in serving if s.sealed and s.visible}
        return bool(replicas) and all((s, r.info.sealed.get(s)) in seen for r in replicas for s in live)
