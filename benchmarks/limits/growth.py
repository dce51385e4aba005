"""The steps of one dimension: grow to the next count, look, and so on until something gives.

A dimension ends in one of three ways: something *gave* (a call failed, or the server ended or stopped
answering), the last count was reached, or its time was over. The time is checked between two units, so a slow
dimension ends within a step, and that step has the count that was reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import grpc
from pymilvus.exceptions import MilvusException

from benchmarks.limits.figures import Dimension, End, Look, Step, Trickle

Clock = Callable[[], float]
FAILURES = (MilvusException, grpc.RpcError, TimeoutError, ConnectionError, RuntimeError)
"""The errors that users see of a server that gave. `RuntimeError`: its process ended."""


class Gave(Exception):
    """Something gave. ``at``: how many there were; ``said``: what the user saw."""

    def __init__(self, at: int, said: str) -> None:
        super().__init__(f"gave at {at:,}: {said}")
        self.at = at
        self.said = said


@dataclass(frozen=True, slots=True)
class Growth:
    """``reached``: how many there are now. ``one_more_ms``: what each new one took, on average."""

    reached: int
    one_more_ms: float


class Subject(Protocol):
    """The thing that grows. Its calls raise `Gave`, or one of `FAILURES`."""

    def grow(self, have: int, to: int, until_s: float) -> Growth:
        """Grow from ``have`` to ``to`` units; to less where the clock shows ``until_s`` before."""

    def look(self, have: int) -> Look: ...

    def trickle(self, have: int) -> Trickle | None:
        """Write a little to everything for a while, at the end; None where that says nothing."""


def geometric(first: int, factor: int, bound: int) -> Iterator[int]:
    """Yield first, first * factor, … and at last the bound."""
    count = first
    while count < bound:
        yield count
        count *= factor
    yield bound


def one_by_one(
    add: Callable[[int], None], have: int, to: int, until_s: float, clock: Clock, units: int = 1
) -> Growth:
    """Call ``add(number)`` with 0 for the first unit of all, and so on; each call adds ``units`` of them.

    Raises `Gave` with the number of units that were added before a call failed.
    """
    began_s, reached = clock(), have
    while reached < to and clock() < until_s:
        try:
            add(reached)
        except FAILURES as error:
            raise Gave(reached, text_of(error)) from error
        reached += units
    return Growth(reached, 1000 * (clock() - began_s) / max(1, reached - have))


def text_of(error: BaseException) -> str:
    """Return the text that a user reads of an error."""
    if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
        return f"{error.code().name}: {error.details()}"
    return f"{type(error).__name__}: {error}"


def grow(
    name: str,
    subject: Subject,
    counts: Sequence[int],
    budget_s: float,
    clock: Clock,
    keep: Callable[[Dimension], None],
) -> Dimension:
    """Take the steps. ``keep`` gets what there is after each, so that an interruption loses one at most."""
    steps: list[Step] = []
    have, until_s = 0, clock() + budget_s
    try:
        for to in counts:
            grown = subject.grow(have, to, until_s)
            if grown.reached > have:
                have = grown.reached
                steps.append(Step(have, grown.one_more_ms, subject.look(have)))
                keep(Dimension(name, tuple(steps), End.INTERRUPTED, have))
            if have < to or (to != counts[-1] and clock() >= until_s):
                return Dimension(name, tuple(steps), End.TIME, have, trickle=subject.trickle(have))
        return Dimension(name, tuple(steps), End.BOUND, have, trickle=subject.trickle(have))
    except Gave as gave:
        return Dimension(name, tuple(steps), End.GAVE, gave.at, gave.said)
    except FAILURES as error:
        return Dimension(name, tuple(steps), End.GAVE, have, text_of(error))
