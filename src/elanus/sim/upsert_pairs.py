"""The judge's record of upserts that give their rows new keys, and its check that none is there by half.

An upsert that failed may or may not have taken effect, but row by row: the log has the delete of the old key
and the new row, at one timestamp, or neither. The record holds every attempt. Each attempted row is
identified by its value, which no other row has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elanus.core.ids import CollectionID
from elanus.core.invariants import InvariantBroken
from elanus.core.timestamps import Timestamp
from elanus.sim.truth import Contents, Deletion


class DeleteAttempt:
    """A delete of these keys. ``ts``: None until it is acknowledged."""

    def __init__(self, keys: Sequence[int]) -> None:
        self.keys = frozenset(keys)
        self.ts: Timestamp | None = None

    def explains(self, deletion: Deletion) -> bool:
        return deletion.key in self.keys and self.ts in (None, deletion.ts)


class UpsertPairs:
    """``collections``: those with automatic keys, as far as a client has learned them."""

    def __init__(self) -> None:
        self.collections: set[CollectionID] = set()
        self._replaced_by: dict[int, int] = {}
        self._deletes: list[DeleteAttempt] = []

    def replacing(self, keys: Sequence[int], values: Sequence[int]) -> None:
        """Record that rows with these values are about to replace the rows with these keys."""
        self._replaced_by |= dict(zip(values, keys, strict=True))

    def deleting(self, keys: Sequence[int]) -> DeleteAttempt:
        """Record that these keys are about to be deleted. The caller sets ``ts`` when it is acknowledged."""
        attempt = DeleteAttempt(keys)
        self._deletes.append(attempt)
        return attempt

    def check(self, contents: Contents) -> None:
        """Raises `InvariantBroken` for a new row without its delete, or a delete without its new row."""
        stored = {
            (self._replaced_by[row.value], row.born)
            for row in contents.rows
            if row.value in self._replaced_by
        }
        for key, ts in sorted(stored):
            if not contents.has_deletion(key, ts):
                raise InvariantBroken("UPS1", f"the upsert at {ts} left the old row of key {key}", (key,))
        self._check_deletions(contents, stored)

    def _check_deletions(self, contents: Contents, stored: set[tuple[int, Timestamp]]) -> None:
        attempts = self._attempts_by_key()
        for deletion in contents.deletions:
            explained = any(attempt.explains(deletion) for attempt in attempts.get(deletion.key, ()))
            if not explained and (deletion.key, deletion.ts) not in stored:
                raise InvariantBroken(
                    "UPS1",
                    f"key {deletion.key} is deleted at {deletion.ts}, and no row has replaced it",
                    (deletion.key,),
                )

    def _attempts_by_key(self) -> Mapping[int, list[DeleteAttempt]]:
        attempts: dict[int, list[DeleteAttempt]] = {}
        for attempt in self._deletes:
            for key in attempt.keys:
                attempts.setdefault(key, []).append(attempt)
        return attempts
