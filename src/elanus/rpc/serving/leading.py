"""Leadership: of several threads, one at a time does the work that must not stop.

The leader reads the queue and runs short handlers itself. While it does, leadership can pass to another
thread, and the handler goes on as if it were in a pool: the leader hands it on before it waits (`pass_on`),
or the watcher takes it when a handler has run for ``patience_s``. Each leadership is a *term* with a
number: a thread that returns from a handler learns from `end` whether its term is over.

The watcher looks at the leader in intervals of ``patience_s``. After ten without any handler it sleeps until
the next one begins, so an idle server has nothing to do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PATIENCE_S = 0.02
_QUIET_LOOKS = 10
_SPARES_MAX = 4
"""Threads kept for the next terms; further ones end."""


class Leadership:
    """``lead(term)`` is called in a thread that leads; it returns when `term` is another or `finish` was
    called.

    `begin` and `end` are called by the leader around each handler, `pass_on` from within one.
    """

    def __init__(
        self,
        lead: Callable[[int], None],
        name: str,
        patience_s: float = PATIENCE_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lead = lead
        self._name = name
        self._patience_s = patience_s
        self._now_s = now_s
        self._changed = threading.Condition(threading.Lock())
        self.term = 1
        """The number of the present term. Read by the leader without the lock."""
        self.displaced = 0
        """Handlers at work whose threads led when they began, and do not any more."""
        self._is_vacant = True
        self._is_watched = False
        self._is_asleep = False
        self._is_over = False
        self._spares = 0
        self._runs = 0
        self._busy_since_s: float | None = None
        self._lost: Callable[[], None] = _nothing

    def start(self) -> None:
        """Start a leader and a watcher."""
        self._hire()
        self._hire()

    def begin(self, lost: Callable[[], None]) -> None:
        """A handler begins in the leader. ``lost`` is called if leadership passes on before its `end`."""
        self._lost = lost
        self._runs += 1
        self._busy_since_s = self._now_s()
        if self._is_asleep:
            with self._changed:
                self._changed.notify_all()

    def end(self, term: int) -> bool:
        """The handler that began in ``term`` has returned. Returns whether its thread still leads."""
        with self._changed:
            if term != self.term:
                self.displaced -= 1
                return False
            self._busy_since_s = None
            self._lost = _nothing
            return True

    def pass_on(self, term: int) -> None:
        """Let another thread lead, if the calling one does: its handler is about to wait."""
        with self._changed:
            if term != self.term or self._busy_since_s is None:
                return
            lost = self._displace()
            self._is_vacant = True
            if self._spares or self._is_watched:
                self._changed.notify_all()
            else:
                self._hire()
        lost()

    def finish(self) -> None:
        """End all threads that wait to lead. The leader ends by itself."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _hire(self) -> None:
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def _run(self) -> None:
        while (term := self._next_term()) is not None:
            self._lead(term)

    def _next_term(self) -> int | None:
        """Wait until the calling thread leads, and return its term; None if it is not needed."""
        lost = _nothing
        with self._changed:
            while not self._is_vacant:
                if self._is_over:
                    return None
                if not self._is_watched:
                    lost = self._watch()
                elif self._spares >= _SPARES_MAX:
                    return None
                else:
                    self._spares += 1
                    self._changed.wait()
                    self._spares -= 1
            if self._is_over:
                return None
            self._is_vacant = False
            term = self.term
            if not self._is_watched:  # the next watcher
                if self._spares:
                    self._changed.notify_all()
                elif self.displaced:
                    self._hire()
        lost()
        return term

    def _watch(self) -> Callable[[], None]:
        """Return when leadership is vacant, or everything over. The lock is held except while waiting."""
        self._is_watched = True
        lost = _nothing
        seen, quiet = -1, 0
        while not self._is_vacant and not self._is_over:
            if quiet < _QUIET_LOOKS:
                self._changed.wait(self._patience_s)
            else:
                self._is_asleep = True  # first, since `begin` counts before it looks at this
                if self._runs == seen:
                    self._changed.wait()
                self._is_asleep = False
                quiet = 0
            if self._is_overdue():
                lost = self._displace()
                self._is_vacant = True
            quiet = quiet + 1 if self._runs == seen else 0
            seen = self._runs
        self._is_watched = False
        return lost

    def _is_overdue(self) -> bool:
        since_s = self._busy_since_s  # None after the leader has passed on
        return since_s is not None and self._now_s() - since_s >= self._patience_s

    def _displace(self) -> Callable[[], None]:
        lost, self._lost = self._lost, _nothing
        self._busy_since_s = None
        self.term += 1
        self.displaced += 1
        return lost


def _nothing() -> None:
    return
