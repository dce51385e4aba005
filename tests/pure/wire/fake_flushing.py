"""The flush states, as the wire tests need them: everything is flushed at once."""

from __future__ import annotations

from collections.abc import Sequence

from elanus.core.timestamps import Timestamp, compose

FLUSHED_MS = 1_700_000_000_000


class FakeFlushing:
    """``flush_states``: the databases whose state was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.flush_states: list[str] = []

    def flush_state(
        self, segment_ids: Sequence[int], database: str, collection: str, flush_ts: Timestamp
    ) -> bool:
        return True

    def flush_all(self, database: str) -> Timestamp:
        return compose(FLUSHED_MS)

    def flush_all_state(self, database: str, flush_ts: Timestamp) -> bool:
        self.flush_states.append(database)
        return flush_ts == compose(FLUSHED_MS)
