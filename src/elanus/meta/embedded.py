"""The common part of the stores inside one process: leases that expire by themselves, and watches.

The store proper (a dictionary, an SQLite file) applies transactions. This part keeps the leases in memory,
checks them regularly, removes the keys of expired ones, and passes every change on to the watches. The most
recent changes are kept, so that a watch may begin a little in the past.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from itertools import takewhile

from elanus.core.lease import LeaseTable
from elanus.meta.port import (
    Change,
    Delete,
    LeaseExpired,
    LeaseID,
    Put,
    StoreClosed,
    Versioned,
    WatchBroken,
)
from elanus.meta.tasks import cancel_and_wait

HISTORY_MAX = 4096
"""How many changes are kept for watches that begin in the past."""
CHECK_S = 0.2
"""How often the leases are checked: more often than `elanus.core.lease.GAP_MAX_S`."""


class _Watcher:
    """One watch: the changes under its prefix that it has not taken yet."""

    def __init__(self, prefix: str) -> None:
        self.arrived = asyncio.Event()
        self._prefix = prefix
        self._waiting: list[Change] = []

    def publish(self, changes: Iterable[Change]) -> None:
        wanted = [change for change in changes if change.key.startswith(self._prefix)]
        if wanted:
            self._waiting += wanted
            self.arrived.set()

    def take(self) -> list[Change]:
        """Raises `WatchBroken` when the watch has fallen too far behind."""
        self.arrived.clear()
        taken, self._waiting = self._waiting, []
        if len(taken) > HISTORY_MAX:
            raise WatchBroken(f"{len(taken)} changes of {self._prefix} were not taken in time")
        return taken


class Hub:
    """Distributes changes from the transactions to the watches."""

    def __init__(self) -> None:
        self._history: deque[Change] = deque(maxlen=HISTORY_MAX)
        self._known_since = 0
        self._closed = False
        self._watchers: dict[_Watcher, None] = {}

    def begin_at(self, revision: int) -> None:
        """Changes up to this revision are not known here."""
        self._known_since = revision

    def publish(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if len(self._history) == HISTORY_MAX:
                self._known_since = self._history[0].revision
            self._history.append(change)
        for watcher in self._watchers:
            watcher.publish(changes)

    def close(self) -> None:
        self._closed = True
        for watcher in self._watchers:
            watcher.arrived.set()

    async def watch(self, prefix: str, after: int) -> AsyncGenerator[Sequence[Change], None]:
        if after < self._known_since:
            raise WatchBroken(f"changes since revision {after} are known from {self._known_since} on")
        watcher = _Watcher(prefix)
        watcher.publish(self._since(after))
        self._watchers[watcher] = None
        try:
            while not self._closed:
                if new := watcher.take():
                    yield new
                else:
                    await watcher.arrived.wait()
        finally:
            del self._watchers[watcher]
        raise StoreClosed("the metadata store is closed")

    def _since(self, after: int) -> list[Change]:
        return list(takewhile(lambda change: change.revision > after, reversed(self._history)))[::-1]


class Leases:
    """The leases of one store, as its transactions see them. Used by one thread at a time."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._table = LeaseTable(monotonic_s())

    def grant(self, ttl_s: int) -> LeaseID:
        return LeaseID(self._table.grant(ttl_s, self._monotonic_s()))

    def renew(self, lease: LeaseID) -> int:
        left_s = self._table.renew(lease, self._monotonic_s())
        if left_s is None:
            raise LeaseExpired(f"lease {lease} is over")
        return int(left_s)

    def check(self, operations: Sequence[Put | Delete]) -> None:
        """Raises `LeaseExpired` for a put under a lease that is over."""
        for operation in operations:
            if isinstance(operation, Put) and operation.lease and operation.lease not in self._table:
                raise LeaseExpired(f"lease {operation.lease} is over")

    def applied(self, operations: Sequence[Put | Delete]) -> None:
        """Record which key is bound to which lease."""
        for operation in operations:
            if isinstance(operation, Put):
                self._table.bind(operation.key, operation.lease)
            else:
                self._table.unbind(operation.key)

    def removals(self, lease: LeaseID) -> list[Delete]:
        """Return the deletes of the keys to remove when the lease ends."""
        return [Delete(key) for key in self._table.keys(lease)]

    def end(self, lease: LeaseID) -> None:
        """The lease is over from now on, if it was not already."""
        self._table.end(lease)

    def over(self) -> list[LeaseID]:
        return [LeaseID(lease) for lease in self._table.over(self._monotonic_s())]


class ExpiryChecks:
    """Calls ``check`` regularly to end expired leases, from the first grant on. ``check`` must not raise."""

    def __init__(self, check: Callable[[], Awaitable[None]]) -> None:
        self._check = check
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="leases")

    async def stop(self) -> None:
        await cancel_and_wait(self._task)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            await self._check()


def changes_of(operations: Sequence[Put | Delete], revision: int) -> list[Change]:
    """Return the changes that a transaction made."""
    return [
        Change(o.key, revision, Versioned(bytes(o.value), revision) if isinstance(o, Put) else None)
        for o in operations
    ]
