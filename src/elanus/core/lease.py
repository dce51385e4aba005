"""Leases as plain decisions: how long a holder may believe in its own, and when a store ends one.

A lease ties what somebody may do to the proof that he is alive. Two clocks take part, the holder's and
the store's, and the rule that makes it safe is one-sided: **the holder stops believing before the store
lets go**. So the holder counts from the moment it *sent* its last renewal, the store from the moment it
*took* it; and the holder gives away a little for clocks that run at different speeds (`HeldLease`).

A holder whose own time is over has not lost its lease yet. It does not know, and must ask the store
before it acts on it again: if the lease could be renewed, it has never ended in between.

`LeaseTable` is the store's side for stores that live inside one process. There holder and store stand
still together: a laptop that sleeps, a disk that hangs, a long pause of the interpreter. When time goes on,
nobody has had a chance to renew anything, and an absence that nobody could have prevented proves nothing.
So the table counts only time in which it was looked at regularly: however long a gap is, it counts as
`GAP_MAX_S`.

Where a thread renews a lease for a node whose event loop may be kept busy, a renewal says no more than that
the process is there. So the thread asks for a sign of life of the loop too (`Pulse`), and stops without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from elanus.core.ids import NodeID

DRIFT = 0.02
"""The part of a lease's time that its holder gives away, for clocks of different speed."""
RENEWALS_PER_TERM = 3
"""How often a lease is renewed in the time it lasts: two renewals may fail before it is in danger."""
SILENCE_TERMS = 4
"""For how many terms a lease is renewed for a loop that gives no sign of life."""
GAP_MAX_S = 0.5
"""The most that passes for a lease table between two looks at it."""


class Lease(Protocol):
    """A node's registration, as the role that lives by it sees it (`elanus.meta.session.Session`)."""

    @property
    def node_id(self) -> NodeID: ...

    async def confirm(self) -> None:
        """Returns when nobody has taken this node for dead before now. Raises `LeaseLost`."""
        ...

    def give_up(self, why: str) -> None:
        """Others no longer count on this node: it has to join again."""
        ...


class HeldLease:
    """What a holder knows of its own lease. Times are seconds on the holder's monotonic clock."""

    def __init__(self, ttl_s: float, sent_s: float) -> None:
        """``sent_s``: when the request that was granted had been sent."""
        self.ttl_s = ttl_s
        self._until_s = 0.0
        self.renewed(sent_s)

    def renewed(self, sent_s: float) -> None:
        """A renewal that was sent then has succeeded."""
        self._until_s = max(self._until_s, sent_s + self.ttl_s * (1 - DRIFT))

    def is_valid(self, now_s: float) -> bool:
        """Whether the store cannot have ended it by now."""
        return now_s < self._until_s

    @property
    def renew_every_s(self) -> float:
        return self.ttl_s / RENEWALS_PER_TERM


class Pulse:
    """The signs of life of an event loop whose lease a thread renews. Beaten by one, read by the other."""

    def __init__(self, ttl_s: float, now_s: float) -> None:
        self._silence_max_s = ttl_s * SILENCE_TERMS
        self._beat_s = now_s

    def beat(self, now_s: float) -> None:
        self._beat_s = now_s

    def is_beating(self, now_s: float) -> bool:
        """Whether the loop may be merely slow; if not, its node is to be taken for dead."""
        return now_s - self._beat_s <= self._silence_max_s


@dataclass(slots=True)
class _Entry:
    ttl_s: float
    until_s: float
    keys: set[str] = field(default_factory=set)


class LeaseTable:
    """The leases of a store inside one process, and the keys bound to each.

    ``now_s`` is the store's monotonic clock. Somebody must look (`over`) more often than `GAP_MAX_S`.
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
        """The seconds it lasts from now; ``None`` when it is over."""
        entry = self._entries.get(lease)
        if entry is None:
            return None
        entry.until_s = self._pass(now_s) + entry.ttl_s
        return entry.ttl_s

    def bind(self, key: str, lease: int) -> None:
        """A put of the key, under a lease or (0) under none."""
        self.unbind(key)
        if lease:
            self._entries[lease].keys.add(key)
            self._lease_of[key] = lease

    def unbind(self, key: str) -> None:
        """The key is gone, or put without a lease."""
        lease = self._lease_of.pop(key, None)
        if lease is not None:
            self._entries[lease].keys.discard(key)

    def keys(self, lease: int) -> tuple[str, ...]:
        """What goes with the lease."""
        entry = self._entries.get(lease)
        return tuple(sorted(entry.keys)) if entry is not None else ()

    def end(self, lease: int) -> None:
        """Forget a lease, and what was bound to it."""
        for key in self.keys(lease):
            del self._lease_of[key]
        self._entries.pop(lease, None)

    def over(self, now_s: float) -> Sequence[int]:
        """The leases whose time is over. They stay until they are ended."""
        passed_s = self._pass(now_s)
        return tuple(lease for lease, entry in self._entries.items() if entry.until_s <= passed_s)

    def _pass(self, now_s: float) -> float:
        """Time as it counts here: what passes unlooked at beyond the gap does not."""
        self._passed_s += min(max(0.0, now_s - self._looked_s), GAP_MAX_S)
        self._looked_s = max(self._looked_s, now_s)
        return self._passed_s
