"""The verbs of compaction, as the wire tests need them: they note their calls, and return prepared plans."""

from __future__ import annotations

from collections.abc import Sequence

from elanus.core.compaction import CompactionPlan
from elanus.proxy.api.compaction import StartedCompaction

COMPACTION_ID = 77


class FakeCompaction:
    def __init__(self) -> None:
        self.compacted: list[tuple[str, str, int]] = []
        self.targets: list[int | None] = []
        self.by_key: list[bool] = []
        self.plans: list[CompactionPlan] = []

    def compact(
        self,
        database: str,
        collection: str,
        collection_id: int,
        target_bytes: int | None = None,
        by_key: bool = False,
    ) -> StartedCompaction:
        self.compacted.append((database, collection, collection_id))
        self.targets.append(target_bytes)
        self.by_key.append(by_key)
        return StartedCompaction(COMPACTION_ID, len(self.plans))

    def compaction_plans(self, compaction_id: int) -> Sequence[CompactionPlan]:
        return self.plans if compaction_id == COMPACTION_ID else ()

    def compactions_of(self, database: str, collection: str) -> Sequence[CompactionPlan]:
        return self.plans if (database, collection) == ("default", "books") else ()
