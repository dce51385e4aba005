"""A life: one run of a role or process, from its start to its crash.

A crash is not an exception. Code that is killed runs no ``finally`` and hears of nothing; it just never
goes on. So everything a role can do to the world (log, metadata, calls, answers) passes the gate of its
life, and a gate that is closed stays closed, with whatever waits in front of it. A stalled process (a long
pause, a machine cut off) is a gate that opens again later, when its place has been taken: a zombie. One that
pauses keeps its place: who called it still waits for its answer, but its leases run out.

Between two passages of the gate a role's code cannot be seen from outside, so a crash at the nth passage
from now reaches every point at which a crash can make a difference.
"""

from __future__ import annotations

import asyncio


class Life:
    """``number``: no other life of the run has it, later ones have higher ones. ``is_outside``: no part of
    the system, and never killed."""

    def __init__(self, role: str, number: int = 0, *, is_outside: bool = False) -> None:
        self.role = role
        self.number = number
        self.name = f"{role}#{number}" if number else role
        self.is_outside = is_outside
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_over = False
        """Nobody gets an answer from it any more."""
        self.is_held = False
        self._gate: asyncio.Future[None] | None = None
        self._passages_left: int | None = None
        self._is_killed = False

    @property
    def is_stopped(self) -> bool:
        """Killed, or stalled and not released: it does nothing."""
        return self._gate is not None

    def retire(self) -> None:
        """It was stopped in an orderly way; what it left running goes on."""
        if not self.is_over:
            self.is_over = True
            self.ended.set_result(None)

    def kill(self) -> None:
        self._is_killed = True
        self._close()

    def stall(self) -> None:
        self._close()

    def waylay(self, passages: int) -> None:
        """Kill it when it has passed its gate that often."""
        self._passages_left = passages
        self.is_held = True

    def pause(self) -> None:
        """It stands still, and nobody has noticed yet."""
        if self._gate is None:
            self._gate = asyncio.get_running_loop().create_future()
        self.is_held = True

    def _close(self) -> None:
        self.pause()
        self.retire()

    def release(self) -> None:
        """A stalled life goes on, too late; one that was killed does not."""
        if self._is_killed:
            return
        gate, self._gate = self._gate, None
        self._passages_left, self.is_held = None, False
        if gate is not None:
            gate.set_result(None)

    async def gate(self) -> None:
        """Returns while the life goes on; of a killed one, never.

        Need not be called while ``is_held`` is false: then it lets pass.
        """
        if self._passages_left is not None:
            self._passages_left -= 1
            if self._passages_left < 0:
                self.kill()
        while self._gate is not None:
            await asyncio.shield(self._gate)
