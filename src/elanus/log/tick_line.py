"""The tick line of a pchannel: how far it has been read, for all vchannels that are followed together.

A tick concerns every vchannel of its pchannel. So it is noted once, here, and a vchannel without messages
costs nothing at a tick: its line says how far it has been read.

Reads that wait for a timestamp watch the line. Each watcher is called at the next tick, and again at the one
after it as long as it asks for that, so a tick costs as much as there is to wake.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from elanus.core.catalog import Checkpoint
from elanus.core.timestamps import Timestamp

Watcher = Callable[[], bool]
"""Called after a tick; returns whether it is to be called after the next one too."""


class TickLine:
    """Moved by one thread, which also calls the watchers. Asked and watched by any thread.

    ``ts``: the last tick; every message up to it has been handed on. ``seek``: where a reader starts in order
    to get all later messages. ``stop``: the position after the tick. ``read_bytes``: the payloads passed
    since the line began, those of all vchannels.
    """

    def __init__(self, start: Checkpoint) -> None:
        """``start``: its tick is the first of the line."""
        self.ts: Timestamp = start.tick
        self.seek = Checkpoint(start.tick, start.position, start.tick, start.epoch)
        self.stop = start.position
        self.read_bytes = 0
        self._watchers: dict[tuple[object, Watcher], None] = {}
        self._has_ended = False
        self._lock = threading.Lock()

    def advance(self, seek: Checkpoint, stop: int, read_bytes: int) -> None:
        """Move to a later tick and call the watchers."""
        self.seek, self.stop, self.read_bytes = seek, stop, read_bytes
        self.ts = seek.ts
        with self._lock:
            watchers, self._watchers = self._watchers, {}
        for owner, watcher in watchers:
            if watcher():
                self.watch(owner, watcher)

    def hold_back(self, other: TickLine) -> None:
        """Serve what ``other`` served too, which is at the same tick and may have to be read from earlier."""
        assert other.ts == self.ts, f"lines differ: {self.ts}, {other.ts}"
        if other.seek.position < self.seek.position:
            self.seek = other.seek
        self.stop = max(other.stop, self.stop)

    def watch(self, owner: object, watcher: Watcher) -> bool:
        """Call ``watcher`` after the next tick; one that ``owner`` has watching already is called once.

        Returns False if the line has ended: then ``owner`` belongs to another.
        """
        with self._lock:
            if not self._has_ended:
                self._watchers[owner, watcher] = None
            return not self._has_ended

    def end(self) -> Sequence[tuple[object, Watcher]]:
        """End the line. Returns who watches, and on whose behalf: they are to watch other lines."""
        with self._lock:
            self._has_ended = True
            watchers, self._watchers = self._watchers, {}
        return tuple(watchers)

    def stopped(self) -> TickLine:
        """Return a line that stays where this one is now."""
        line = TickLine(self.seek)
        line.ts, line.stop, line.read_bytes = self.ts, self.stop, self.read_bytes
        return line
