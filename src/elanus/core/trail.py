"""The trail of one read: what it did, noted while it runs, from which an explanation is made afterwards.

A read is followed when somebody wants to know: the client that sent it, or the log of slow requests. The one
who wants to know starts a `Trail` in the context of the read's thread (`following`). Code on the read's path
asks `current` and notes what it decides; for a read that nobody follows this is one look-up, and nothing is
allocated.

Notes are cheap: a name, two clocks, references to immutable objects. Texts and figures that can be found
out later from the same objects are left to the explanation (`elanus.querynode.explaining`). A trail belongs
to one thread: what a search does in threads of its own is noted by the thread that starts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any

from elanus.core.explanation import NodeReport, Step

Clock = Callable[[], float]
"""Seconds since some moment."""


@dataclass(slots=True)
class Method:
    """How rows were compared or read. ``compared``: how many rows, over all queries.

    ``is_estimate``: the number was computed, not counted. ``why``: why this method was chosen, "" if there
    was no choice. ``params``: its parameters.
    """

    name: str
    compared: int
    is_estimate: bool
    why: str
    params: Mapping[str, float]


@dataclass(slots=True)
class Visit:
    """The work on one block of rows. ``matching``: rows that are visible and that the filter matches,
    None if not counted. ``was_known``: they were known from an earlier read. ``pruned_by``: why none of them
    was looked at, "" if they were."""

    block: Any
    began_s: float
    began_cpu_s: float
    was_known: bool = False
    matching: int | None = None
    seconds: float = 0.0
    cpu_s: float = 0.0
    methods: list[Method] = field(default_factory=list)
    pruned_by: str = ""


class Trail:
    """``now_s``: a clock that never goes back; ``cpu_s``: the processor time of the calling thread, None to
    leave it out. Each note looks at each clock once."""

    __slots__ = (
        "_aim",
        "_because",
        "_cpu_s",
        "_has_cpu",
        "_is_inside",
        "_laps",
        "_now_s",
        "facts",
        "received",
        "reports",
        "visits",
    )

    def __init__(self, now_s: Clock, cpu_s: Clock | None) -> None:
        self._now_s = now_s
        self._has_cpu = cpu_s is not None
        self._cpu_s = cpu_s or float  # which returns 0.0, and costs less than a function of Python
        self._laps: list[tuple[str, float, float]] = []
        self._because = ""
        self._aim: Mapping[str, float] = {}
        self._is_inside = False
        self.facts: dict[str, Any] = {}
        self.reports: list[Callable[[], NodeReport]] = []
        """Make the reports of the query nodes of this process."""
        self.received: list[NodeReport] = []
        """The reports of nodes of other processes."""
        self.visits: list[Visit] = []

    def child(self) -> Trail:
        """Return an empty trail with the same clocks, for a part of the read."""
        return Trail(self._now_s, self._cpu_s if self._has_cpu else None)

    def step(self, name: str) -> None:
        """Begin a step, which lasts until the next one begins."""
        self._laps.append((name, self._now_s(), self._cpu_s()))

    @property
    def seconds(self) -> float:
        """From the first step to the last."""
        return self._laps[-1][1] - self._laps[0][1] if self._laps else 0.0

    @property
    def cpu_seconds(self) -> float:
        """The processor time of this thread from the first step to the last; 0 if it is left out."""
        return self._laps[-1][2] - self._laps[0][2] if self._laps else 0.0

    def steps(self) -> tuple[Step, ...]:
        """Return the steps with their durations; those with the same name are one. The last step must have
        been ended by a step without a name."""
        has_cpu = self._has_cpu
        steps: dict[str, Step] = {}
        name, began_s, began_cpu_s = "", 0.0, 0.0
        for following_name, now_s, cpu_s in self._laps:
            if name:
                ms = 1000 * (now_s - began_s)
                cpu_ms = 1000 * (cpu_s - began_cpu_s) if has_cpu else None
                other = steps.get(name)
                if other is not None:
                    ms += other.ms
                    cpu_ms = None if cpu_ms is None or other.cpu_ms is None else cpu_ms + other.cpu_ms
                steps[name] = Step(name, ms, cpu_ms)
            name, began_s, began_cpu_s = following_name, now_s, cpu_s
        return tuple(steps.values())

    def cpu_ms(self, cpu_s: float) -> float | None:
        """Return processor time that was noted, None if this trail leaves it out."""
        return cpu_s * 1000 if self._has_cpu else None

    def visit(self, block: Any, *, was_known: bool = False) -> None:
        """A block of rows is looked at from now on, until the next one or `leave`. See `Visit`."""
        now_s, cpu_s = self._now_s(), self._cpu_s()
        self._end_visit(now_s, cpu_s)
        self.visits.append(Visit(block, now_s, cpu_s, was_known))
        self._aim = {}
        self._is_inside = True

    def leave(self) -> None:
        """The last block is done."""
        self._end_visit(self._now_s(), self._cpu_s())

    def _end_visit(self, now_s: float, cpu_s: float) -> None:
        if self._is_inside:
            self._is_inside = False
            last = self.visits[-1]
            last.seconds = now_s - last.began_s
            last.cpu_s = cpu_s - last.began_cpu_s

    def selected(self, matching: int) -> None:
        """How many rows of the block the read may return."""
        self.visits[-1].matching = matching

    def pruned(self, why: str) -> None:
        """Why the rows of the block are left out."""
        self.visits[-1].pruned_by = why

    def aim(self, **of: float) -> None:
        """How the effort of the methods that are noted next was found, for this block."""
        self._aim = of

    def because(self, why: str) -> None:
        """Why the method that is noted next was chosen."""
        self._because = why

    def method(self, name: str, compared: int, *, is_estimate: bool = False, **params: float) -> None:
        """How rows of the block are compared; a search may take several methods one after the other."""
        why, self._because = self._because, ""
        if self._is_inside:
            self.visits[-1].methods.append(
                Method(name, compared, is_estimate, why, {**params, **self._aim} if self._aim else params)
            )


_current: ContextVar[Trail | None] = ContextVar("trail", default=None)
current = _current.get
"""Returns the trail of the read that runs in this context; None: nobody follows it."""


def step(name: str) -> None:
    """As `Trail.step`, if the read is followed."""
    trail = _current.get()
    if trail is not None:
        trail.step(name)


def follow(trail: Trail) -> Token[Trail | None]:
    """As `following`, for a caller that ends it with `end_following`."""
    return _current.set(trail)


def end_following(token: Token[Trail | None]) -> None:
    _current.reset(token)


def note_aim(effort: float | None, best: float | None) -> None:
    """An index looked for the effort of a target recall, which was ``effort``; None: no effort that was
    measured reaches it. ``best``: the highest recall that was measured, None if the index has no curve."""
    trail = _current.get()
    if trail is not None and effort is not None:
        trail.aim(aimed=1.0)
    elif trail is not None:
        trail.aim(aimed=1.0, best=-1.0 if best is None else best)


def note_wait(seconds: float) -> None:
    """How long the read has waited for its timestamp, if it is followed."""
    trail = _current.get()
    if trail is not None:
        trail.facts["waited_s"] = seconds


@contextmanager
def following(trail: Trail | None) -> Iterator[None]:
    """Note what happens in this context on the trail, inside the block."""
    token = _current.set(trail)
    try:
        yield
    finally:
        _current.reset(token)
