"""The front's compaction, as the wire tests need it: it notes what it was asked, and tells prepared plans."""

from __future__ import annotations

from collections.abc import Sequence

from elanus.core.compaction import CompactionPlan
from elanus.proxy.api import StartedCompaction

COMPACTION_ID = 77


class FakeCompaction:
    def __init__(self) -> None:
        self.compacted: list[tuple[str, str, int]] = []
        self.plans: list[CompactionPlan] = []

    def compact(self, database: str, collection: str, collection_id: int) -> StartedCompaction:
        self.compacted.append((database, collection, collection_id))
        return StartedCompaction(COMPACTION_ID, len(self.plans))

    def compaction_plans(self, compaction_id: int) -> Sequence[CompactionPlan]:
        return self.plans if compaction_id == COMPACTION_ID else ()
