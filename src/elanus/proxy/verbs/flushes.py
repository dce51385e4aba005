"""Flush, of some collections or of all, and whether it is finished."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial

from elanus.api.datacoord import FlushOutcome
from elanus.core.errors import CollectionNotFound
from elanus.core.ids import CollectionID, SegmentID
from elanus.core.rate_limits import Action
from elanus.core.timestamps import Timestamp
from elanus.proxy.api.flushes import FlushResult
from elanus.proxy.verbs.family import VerbFamily


class Flushes(VerbFamily):
    def flush(self, database: str, collections: Sequence[str]) -> FlushResult:
        cached = {name: self._collection(database, name) for name in collections}
        for resolved in cached.values():
            self._proxy.admission.allow(Action.DDL, resolved)
        data = self._proxy.coordinators.data
        outcomes = {
            name: self._proxy.define("flush", partial(data.flush, c.collection_id))
            for name, c in cached.items()
        }
        return _flush_result(outcomes)

    def flush_state(
        self, segment_ids: Sequence[int], database: str, collection: str, flush_ts: Timestamp
    ) -> bool:
        collection_id = CollectionID(0)
        if collection:
            collection_id = self._collection(database, collection).collection_id
        wanted = tuple(SegmentID(s) for s in segment_ids)
        data = self._proxy.coordinators.data
        return self._proxy.call(data.flush_finished(collection_id, wanted, flush_ts))

    def flush_all(self, database: str) -> Timestamp:
        """Flush every collection and return a timestamp from before the first flush.

        All rows up to that timestamp are flushed. Rows written to the first collection while the last one is
        flushed are not waited for.
        """
        coordinators = self._proxy.coordinators

        async def everything() -> Timestamp:
            flush_ts = await coordinators.root.alloc_timestamp(1)
            for collection in await coordinators.root.list_collections(database):
                with contextlib.suppress(CollectionNotFound):  # dropped since it was listed
                    await coordinators.data.flush(collection.collection_id)
            return flush_ts

        return self._proxy.define("flush all", everything)

    def flush_all_state(self, database: str, flush_ts: Timestamp) -> bool:
        """Covers the collections that the database has now, or all collections when no database is named."""
        coordinators = self._proxy.coordinators

        async def finished() -> bool:
            if not database:
                return await coordinators.data.flush_finished(CollectionID(0), (), flush_ts)
            for collection in await coordinators.root.list_collections(database):
                if not await coordinators.data.flush_finished(collection.collection_id, (), flush_ts):
                    return False
            return True

        return self._proxy.call(finished())


def _flush_result(outcomes: dict[str, FlushOutcome]) -> FlushResult:
    return FlushResult(
        segment_ids={name: o.sealed for name, o in outcomes.items()},
        flushed_segment_ids={name: o.flushed for name, o in outcomes.items()},
        flush_ts={name: o.flush_ts for name, o in outcomes.items()},
    )
