"""Why segments were sealed, and how many flush calls wait for them: what an order reports to the job ledger.

Kept in memory only. After a restart of the coordinator, an order gives the restart as its reason instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from elanus.api.datanode import FlushReason
from elanus.core.ids import SegmentID

CALLED = "flush call"


class FlushCauses:
    def __init__(self) -> None:
        self._causes: dict[SegmentID, str] = {}
        self._calls: Counter[SegmentID] = Counter()

    def sealed(self, segment_id: SegmentID, cause: str) -> None:
        self._causes[segment_id] = cause

    def called(self, segment_ids: Iterable[SegmentID]) -> None:
        """Note that a client's flush waits for these segments."""
        self._calls.update(segment_ids)

    def __len__(self) -> int:
        """How many notes are kept."""
        return len(self._causes) + len(self._calls)

    def keep_only(self, segment_ids: Iterable[SegmentID]) -> None:
        """Forget all other segments: no order will mention them again."""
        kept = set(segment_ids)
        for known in [s for s in (*self._causes, *self._calls) if s not in kept]:
            self._causes.pop(known, None)
            self._calls.pop(known, None)

    def of(self, segment_ids: Iterable[SegmentID]) -> FlushReason:
        """Return the reason of an order. ``segment_ids``: the segments to complete; none if only the size of
        the log is the reason."""
        ids = tuple(segment_ids)
        if not ids:
            return FlushReason("size of the log")
        causes = sorted({self._causes.get(s, "sealed before a restart") for s in ids})
        calls = max(self._calls[s] for s in ids)
        waiting = (f"{calls} flush call{'s' if calls > 1 else ''}",) if calls else ()
        return FlushReason(", ".join(causes), waiting)
