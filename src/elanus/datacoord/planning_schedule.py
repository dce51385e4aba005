"""When compactions are planned without a request: for a collection after its flushes, for all at intervals.

After a flush only what has changed is examined. Rows expire and deletes become older than the retention time
without any change; the look at everything finds those. It leaves out the vchannels in which nothing can have
become worthwhile (`elanus.datacoord.planner`).
"""

from __future__ import annotations

import contextlib

from elanus.api.rootcoord import RootCoordApi
from elanus.core.clock import Clock
from elanus.core.errors import CollectionNotFound
from elanus.core.ids import CollectionID
from elanus.datacoord.planner import Planner


class PlanningSchedule:
    """``interval_s``: how often all segments are examined; None: nothing is planned without a request."""

    def __init__(
        self, planner: Planner, rootcoord: RootCoordApi, clock: Clock, interval_s: float | None
    ) -> None:
        self._planner = planner
        self._rootcoord = rootcoord
        self._clock = clock
        self._interval_s = interval_s
        self._due_s = clock.monotonic_s()
        self._changed: dict[CollectionID, None] = {}

    @property
    def due_s(self) -> float | None:
        """When all segments are examined next, by the monotonic clock; None for never."""
        return None if self._interval_s is None else self._due_s

    def changed(self, collection_id: CollectionID) -> None:
        """Note that the segments or the deletes of a collection have changed."""
        self._changed[collection_id] = None

    async def plan(self) -> None:
        """Plan what is due. It stays due if planning fails. Raises what planning raises."""
        if self._interval_s is None:
            self._changed.clear()
            return
        now_s = self._clock.monotonic_s()
        # A change may have made room for plans that did not fit, of any collection.
        if now_s >= self._due_s or (self._changed and self._planner.is_full):
            await self._plan_all()
            self._due_s = now_s + self._interval_s
        elif self._changed:
            await self._plan_changed()

    async def _plan_all(self) -> None:
        changed, self._changed = self._changed, {}
        try:
            await self._planner.plan(await self._rootcoord.list_collections(""), force=False)
        except BaseException:
            self._changed |= changed
            raise
        self._planner.forget_others()

    async def _plan_changed(self) -> None:
        changed, self._changed = self._changed, {}
        collections = []
        try:
            for collection_id in changed:
                with contextlib.suppress(CollectionNotFound):
                    collections.append(await self._rootcoord.collection_by_id(collection_id))
            await self._planner.plan(collections, force=False)
        except BaseException:
            self._changed |= changed
            raise
