"""Lease rules as pure decisions: how long a holder may rely on its lease, and when a store ends one.

A lease ties the right to act to a proof of life. Two clocks are involved, the holder's and the store's, and
the rule that makes leases safe is one-sided: **the holder stops relying on the lease before the store ends
it**. So the holder counts from the moment it *sent* its last renewal, the store from the moment it *received*
it, and the holder gives up a small margin for clocks that run at different speeds (`HeldLease`).

A holder whose own time has run out has not necessarily lost its lease. It does not know, and must ask the
store before it acts again: if the lease can be renewed, it has not ended in between.

`LeaseTable` is the store's side for stores inside one process. There, holder and store pause together: a
laptop sleeps, a disk hangs, the interpreter pauses for long. After such a pause, no holder has had a chance
to renew, so a missing renewal proves nothing. The table therefore counts only time in which it was checked
regularly: a gap of any length counts as at most `GAP_MAX_S`.

If a thread renews a lease for a node whose event loop may be busy, a renewal proves only that the process
exists. So the thread also requires a sign of life from the loop (`Pulse`), and stops renewing without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from elanus.core.ids import NodeID

DRIFT = 0.02
"""The fraction of a lease's time that its holder gives up as a margin for clocks of different speed."""
RENEWALS_PER_TERM = 3
"""How often a lease is renewed per term: two renewals may fail before it is at risk."""
SILENCE_TERMS = 4
"""For how many terms a lease is renewed without a sign of life from the event loop."""
GAP_MAX_S = 0.5
"""The most time that a lease table counts between two checks."""


class Lease(Protocol):
    """A node's registration, as seen by the role that depends on it (`elanus.meta.session.Session`)."""

    @property
    def node_id(self) -> NodeID: ...

    def is_valid(self) -> bool:
        """Whether it is certain, without asking the store, that this node has not been declared dead."""
        ...

    async def confirm(self) -> None:
        """Return once it is certain that this node has not been declared dead. Raises `LeaseLost`."""
        ...

    def give_up(self, why: str) -> None:
        """Give up the lease because others no longer rely on this node: it has to join again."""
        ...


class HeldLease:
    """A holder's knowledge of its own lease. Times are seconds on the holder's monotonic clock."""

    def __init__(self, ttl_s: float, sent_s: float) -> None:
        """``sent_s``: when the granted request was sent."""
        self.ttl_s = ttl_s
        self._until_s = 0.0
        self.renewed(sent_s)

    def renewed(self, sent_s: float) -> None:
        """Record the success of a renewal that was sent at ``sent_s``."""
        self._until_s = max(self._until_s, sent_s + self.ttl_s * (1 - DRIFT))

    def is_valid(self, now_s: float) -> bool:
        """Whether it is certain that the store has not ended the lease yet."""
        return now_s < self._until_s

    @property
    def renew_every_s(self) -> float:
        return self.ttl_s / RENEWALS_PER_TERM


class Pulse:
    """Signs of life of an event loop whose lease a thread renews. The loop beats, the thread reads."""

    def __init__(self, ttl_s: float, now_s: float) -> None:
        self._silence_max_s = ttl_s * SILENCE_TERMS
        self._beat_s = now_s

    def beat(self, now_s: float) -> None:
        self._beat_s = now_s

    def is_beating(self, now_s: float) -> bool:
        """Whether the loop may merely be slow; if not, its node counts as dead."""
        return now_s - self._beat_s <= self._silence_max_s


@dataclass(slots=True)
class _Entry:
    ttl_s: float
    until_s: float
    keys: set[str] = field(default_factory=set)


class LeaseTable:
    """The leases of a store inside one process, and the keys bound to each.

    ``now_s`` is the store's monotonic clock. `over` must be called more often than every `GAP_MAX_S`.
    """

    def __init__(self, now_s: float) -> None:
        self._looked_s = now_s
        self._passed_s = 0.0
        self._entries: dict[int, _Entry] = {}
        self._lease_of: dict[str, int] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, lease: int) -> bool:
        return lease in self._entries

    def grant(self, ttl_s: float, now_s: float) -> int:
        self._last_id += 1
        self._entries[self._last_id] = _Entry(ttl_s, self._pass(now_s) + ttl_s)
        return self._last_id

    def renew(self, lease: int, now_s: float) -> float | None:
        """Renew a lease and return the seconds it lasts from now; ``None`` if it has ended."""
        entry = self._entries.get(lease)
        if entry is None:
            return None
        entry.until_s = self._pass(now_s) + entry.ttl_s
        return entry.ttl_s

    def bind(self, key: str, lease: int) -> None:
        """Record a put of the key, under a lease or (0) under none."""
        self.unbind(key)
        if lease:
            self._entries[lease].keys.add(key)
            self._lease_of[key] = lease

    def unbind(self, key: str) -> None:
        """Record that the key was deleted, or put without a lease."""
        lease = self._lease_of.pop(key, None)
        if lease is not None:
            self._entries[lease].keys.discard(key)

    def keys(self, lease: int) -> tuple[str, ...]:
        """Return the keys bound to the lease."""
        entry = self._entries.get(lease)
        return tuple(sorted(entry.keys)) if entry is not None else ()

    def end(self, lease: int) -> None:
        """Forget a lease and the keys bound to it."""
        for key in self.keys(lease):
            del self._lease_of[key]
        self._entries.pop(lease, None)

    def over(self, now_s: float) -> Sequence[int]:
        """Return the leases whose time has run out. They stay until they are ended."""
        passed_s = self._pass(now_s)
        return tuple(lease for lease, entry in self._entries.items() if entry.until_s <= passed_s)

    def _pass(self, now_s: float) -> float:
        """Advance and return the table's own time: the part of a gap beyond `GAP_MAX_S` does not count."""
        self._passed_s += min(max(0.0, now_s - self._looked_s), GAP_MAX_S)
        self._looked_s = max(self._looked_s, now_s)
        return self._passed_s
