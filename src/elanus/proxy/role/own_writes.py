"""Each client's last write: a Bounded read sees the writes of the client that makes it.

A write older than the Bounded level's grace period is seen by every Bounded read anyway. So two generations
are kept, each one grace period long; older writes are forgotten. When a generation holds its maximum number
of clients, further clients' writes count as everybody's: the collection's readers may wait longer, but none
misses a row.
"""

from __future__ import annotations

import threading

from elanus.core.ids import CollectionID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, minus_ms

_EVERYBODY = ""
_Generation = dict[tuple[str, CollectionID], Timestamp]


class OwnWrites:
    """``grace_ms``: how far behind now a Bounded read may be. `note` takes a lock, `last` does not."""

    def __init__(self, grace_ms: int, clients_max: int = 100_000) -> None:
        self._grace_ms = grace_ms
        self._clients_max = clients_max
        self._generations: tuple[_Generation, _Generation] = ({}, {})
        self._began = NO_TIMESTAMP
        self._lock = threading.Lock()

    def note(self, client: str, collection_id: CollectionID, ts: Timestamp) -> None:
        """Record that a write of the client was stamped ``ts``; called before the write is acknowledged.

        Writes of a client without a name are not recorded.
        """
        if not client:
            return
        with self._lock:
            if minus_ms(ts, self._grace_ms) > self._began:
                self._generations, self._began = ({}, self._generations[0]), ts
            latest = self._generations[0]
            key = (client, collection_id)
            if len(latest) >= self._clients_max and key not in latest:
                key = (_EVERYBODY, collection_id)
            latest[key] = max(ts, latest.get(key, NO_TIMESTAMP))

    def last(self, client: str, collection_id: CollectionID) -> Timestamp:
        """Return the timestamp of the client's last write to the collection.

        It is 0 or an earlier timestamp when the grace period covers the last write.
        """
        found = NO_TIMESTAMP
        for generation in self._generations:
            if generation:
                found = max(
                    found,
                    generation.get((client, collection_id), NO_TIMESTAMP),
                    generation.get((_EVERYBODY, collection_id), NO_TIMESTAMP),
                )
        return found
