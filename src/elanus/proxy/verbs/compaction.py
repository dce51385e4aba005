"""Compaction requested by a client, and its progress."""

from __future__ import annotations

from collections.abc import Sequence

from elanus.core.compaction import CompactionPlan
from elanus.core.ids import CollectionID
from elanus.core.rate_limits import Action
from elanus.proxy.api.compaction import StartedCompaction
from elanus.proxy.verbs.family import VerbFamily


class Compacting(VerbFamily):
    def compact(
        self,
        database: str,
        collection: str,
        collection_id: int,
        target_bytes: int | None = None,
        by_key: bool = False,
    ) -> StartedCompaction:
        if collection or not collection_id:
            cached = self._collection(database, collection)
        else:
            cached = self._collection_by_id(CollectionID(collection_id))
        self._proxy.admission.allow(Action.DDL, cached)
        wanted, data = cached.collection_id, self._proxy.coordinators.data

        async def compact() -> StartedCompaction:
            trigger_id = await data.compact(wanted, target_bytes, by_key)
            return StartedCompaction(trigger_id, len(await data.compaction_plans(trigger_id)))

        return self._proxy.call(compact())

    def compaction_plans(self, compaction_id: int) -> Sequence[CompactionPlan]:
        return self._proxy.call(self._proxy.coordinators.data.compaction_plans(compaction_id))

    def compactions_of(self, database: str, collection: str) -> Sequence[CompactionPlan]:
        wanted = self._collection(database, collection).collection_id
        return self._proxy.call(self._proxy.coordinators.data.compactions_of(wanted))
