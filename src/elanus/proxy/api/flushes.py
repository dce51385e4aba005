"""The verbs of flushes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from elanus.core.ids import SegmentID
from elanus.core.timestamps import Timestamp


@dataclass(frozen=True, slots=True)
class FlushResult:
    """Per collection name: the segments this flush sealed, those flushed before, and the seal's timestamp."""

    segment_ids: Mapping[str, tuple[SegmentID, ...]]
    flushed_segment_ids: Mapping[str, tuple[SegmentID, ...]]
    flush_ts: Mapping[str, Timestamp]


class FlushVerbs(Protocol):
    def flush(self, database: str, collections: Sequence[str]) -> FlushResult:
        """Seal all growing segments of the collections and return; flushing follows in the background."""
        ...

    def flush_state(
        self, segment_ids: Sequence[int], database: str, collection: str, flush_ts: Timestamp
    ) -> bool:
        """Whether all named segments are flushed (or dropped), and, if given, all rows up to ``flush_ts``."""
        ...

    def flush_all(self, database: str) -> Timestamp:
        """Flush every collection (of the database; of all databases when empty).

        Returns a timestamp from before the first flush began, to be passed to `flush_all_state`.
        """
        ...

    def flush_all_state(self, database: str, flush_ts: Timestamp) -> bool:
        """Whether every row up to ``flush_ts`` is flushed in the same collections."""
        ...
