"""How long one read may wait for its timestamp to be served, and how long it has waited.

Where it waits depends on where the query nodes are: in its own thread for a node in this process, and at
every node for nodes that it reaches over a query channel.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator


class Patience:
    """``timeout_s`` counts from construction, by the clock ``now_s``. Waiting code adds to ``waited_s``.

    ``needs_tick``: whether the read has asked for a time tick, which it or its nodes wait for.
    """

    __slots__ = ("_began_s", "_now_s", "needs_tick", "timeout_s", "waited_s")

    def __init__(self, timeout_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self.timeout_s = timeout_s
        self.waited_s = 0.0
        self.needs_tick = False
        self._now_s = now_s
        self._began_s = now_s()

    def left_s(self) -> float:
        return max(0.0, self._began_s + self.timeout_s - self._now_s())

    def elapsed_s(self) -> float:
        return self._now_s() - self._began_s

    def at_most(self, timeout_s: float) -> Patience:
        """Return a patience for one part of the waiting: what is left, and not more than ``timeout_s``."""
        return Patience(min(timeout_s, self.left_s()), self._now_s)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time spent inside the block as waiting."""
        began_s = self._now_s()
        try:
            yield
        finally:
            self.waited_s += self._now_s() - began_s
