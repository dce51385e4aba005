"""How long one read may wait for its moment to be served, and how long it did.

Where it waits depends on where the query nodes are: in its own thread for a node in this process, at every
node for those it reaches over a query channel.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Patience:
    """``timeout_s`` counts from when this was made. ``waited_s`` is entered by those who wait."""

    timeout_s: float
    waited_s: float = 0.0
    _began_s: float = field(default_factory=time.monotonic)

    def left_s(self) -> float:
        return max(0.0, self._began_s + self.timeout_s - time.monotonic())

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """What is done within is a wait."""
        began_s = time.monotonic()
        try:
            yield
        finally:
            self.waited_s += time.monotonic() - began_s
