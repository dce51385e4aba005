"""A life: one run of a role or process, from its start to its crash.

A crash is not an exception. Code that is killed runs no ``finally`` and receives no notice; it just never
continues. So everything a role can do to the world (log, metadata, calls, answers) passes the gate of its
life. Once a gate is closed by a crash it stays closed, and whatever waits in front of it never passes. A
stalled process (a long pause, a machine that was cut off) has a gate that opens again later, when the process
has been replaced: a zombie. A paused process is not replaced: its callers still wait for their answers, but
its leases run out.

Between two passages of the gate a role's code cannot be observed from outside. A crash at the nth passage
from now therefore reaches every point at which a crash can make a difference.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextvars import ContextVar


class Life:
    """One run of a role or process.

    ``number``: unique in the run, and higher for later lives. ``is_outside``: not a part of the system, and
    never killed.
    """

    def __init__(self, role: str, number: int = 0, *, is_outside: bool = False) -> None:
        self.role = role
        self.number = number
        self.name = f"{role}#{number}" if number else role
        self.is_outside = is_outside
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_over = False
        """Nobody receives an answer from it any more."""
        self.is_held = False
        self._gate: asyncio.Future[None] | None = None
        self._passages_left: int | None = None
        self._is_killed = False

    @property
    def is_stopped(self) -> bool:
        """Whether the life does nothing: it was killed, or was stalled or paused and not released."""
        return self._gate is not None

    def retire(self) -> None:
        """End the life in an orderly way; work that it left running continues."""
        if not self.is_over:
            self.is_over = True
            self.ended.set_result(None)

    def kill(self) -> None:
        self._is_killed = True
        self._close()

    def stall(self) -> None:
        self._close()

    def waylay(self, passages: int) -> None:
        """Kill the life once it has passed its gate this many times."""
        self._passages_left = passages
        self.is_held = True

    def pause(self) -> None:
        """Stop the life without ending it: nobody has noticed yet."""
        if self._gate is None:
            self._gate = asyncio.get_running_loop().create_future()
        self.is_held = True

    def _close(self) -> None:
        self.pause()
        self.retire()

    def release(self) -> None:
        """Let a stalled life continue, too late. A killed one stays closed."""
        if self._is_killed:
            return
        gate, self._gate = self._gate, None
        self._passages_left, self.is_held = None, False
        if gate is not None:
            gate.set_result(None)

    async def gate(self) -> None:
        """Return while the life runs; never return once it is killed.

        The call can be skipped while ``is_held`` is false: the gate is open then.
        """
        if self._passages_left is not None:
            self._passages_left -= 1
            if self._passages_left < 0:
                self.kill()
        while self._gate is not None:
            await asyncio.shield(self._gate)


_current: ContextVar[Life | None] = ContextVar("life", default=None)


def current_life() -> Life | None:
    """Return the life whose work goes on; None: that of the clients, or of the simulator itself."""
    return _current.get()


@contextlib.contextmanager
def working_for(life: Life | None) -> Iterator[None]:
    """Mark work as that of a life. The tasks and timers that it begins, and those that they begin, inherit
    it."""
    before = _current.get()
    _current.set(life)
    try:
        yield
    finally:
        _current.set(before)  # no token: a coroutine that is thrown away may be closed in another context
