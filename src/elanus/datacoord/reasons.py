"""Why segments were sealed, and how many flush calls wait for them: what an order tells the job ledger.

In memory only. After a restart of the coordinator an order says so instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from elanus.core.ids import SegmentID
from elanus.rpc.datanode import FlushReason

CALLED = "flush call"


class Reasons:
    def __init__(self) -> None:
        self._causes: dict[SegmentID, str] = {}
        self._calls: Counter[SegmentID] = Counter()

    def sealed(self, segment_id: SegmentID, cause: str) -> None:
        self._causes[segment_id] = cause

    def called(self, segment_ids: Iterable[SegmentID]) -> None:
        """A client's flush waits for these."""
        self._calls.update(segment_ids)

    def keep_only(self, segment_ids: Iterable[SegmentID]) -> None:
        """Of all others no order will tell any more."""
        kept = set(segment_ids)
        for known in [s for s in (*self._causes, *self._calls) if s not in kept]:
            self._causes.pop(known, None)
            self._calls.pop(known, None)

    def of(self, segment_ids: Iterable[SegmentID]) -> FlushReason:
        """``segment_ids``: what is to be completed; none where the log alone has grown too large."""
        ids = tuple(segment_ids)
        if not ids:
            return FlushReason("size of the log")
        causes = sorted({self._causes.get(s, "sealed before a restart") for s in ids})
        calls = max(self._calls[s] for s in ids)
        waiting = (f"{calls} flush call{'s' if calls > 1 else ''}",) if calls else ()
        return FlushReason(", ".join(causes), waiting)
