"""The verbs of compaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from elanus.core.compaction import CompactionPlan


@dataclass(frozen=True, slots=True)
class StartedCompaction:
    """``plans``: the number of plans made; 0 when there is nothing to gain."""

    compaction_id: int
    plans: int


class CompactionVerbs(Protocol):
    def compact(
        self,
        database: str,
        collection: str,
        collection_id: int,
        target_bytes: int | None = None,
        by_key: bool = False,
    ) -> StartedCompaction:
        """Start a compaction and return. An empty name: by id. ``target_bytes``, ``by_key``: see
        `CompactionCalls.compact`.

        Raises `CollectionNotFound`.
        """
        ...

    def compaction_plans(self, compaction_id: int) -> Sequence[CompactionPlan]:
        """Return the current plans; none if the compaction is unknown, found nothing to do or is over."""
        ...

    def compactions_of(self, database: str, collection: str) -> Sequence[CompactionPlan]:
        """Return the plans of a collection that are remembered."""
        ...
