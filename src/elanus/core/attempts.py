"""Attempts: numbered tries of jobs that write files, each with a deadline for its commit.

Every try takes a number before it writes. Its files carry the number in their names (`stamped`), and its
commit names it. An attempt ends when its commit is answered, when its job fails, when its owner is gone, or
when its deadline passes; after that its commit is refused. Numbers only grow, also across restarts.

This makes garbage certain, not a guess by age: a file whose number is below that of every open attempt, and
that nothing refers to, will never be referred to, whatever the clocks say and however late a job wakes up.
Garbage collection relies on this (`elanus.core.gc`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from elanus.core.errors import CommitRefused

NO_ATTEMPT = 0
"""The attempt number of a commit that adds no files."""

_STAMP = re.compile(r"a(\d{1,19})-")


def stamped(number: int, rest: str) -> str:
    """Return a file name, or the beginning of one, that carries the attempt's number."""
    return f"a{number}-{rest}"


def number_in(name: str) -> int:
    """Return the attempt's number in a file's name, or `NO_ATTEMPT` if there is none."""
    found = _STAMP.match(name)
    return int(found[1]) if found else NO_ATTEMPT


@dataclass(slots=True)
class OpenAttempts:
    """The attempts that may still commit. Times are seconds of one monotonic clock; an owner is any number.

    In memory only: a coordinator starts with none, so attempts opened before a restart can no longer commit.
    """

    deadline_s: float
    _opened_s: dict[int, float] = field(default_factory=dict)
    _owners: dict[int, int] = field(default_factory=dict)

    def open(self, number: int, now_s: float, owner: int) -> None:
        self._opened_s[number] = now_s
        self._owners[number] = owner

    def check(self, number: int, now_s: float) -> None:
        """Raises `CommitRefused` for an attempt that is not open or no longer open."""
        opened_s = self._opened_s.get(number)
        if opened_s is None:
            raise CommitRefused(f"attempt {number} is not open: it was given up, or has committed")
        if now_s - opened_s > self.deadline_s:
            raise CommitRefused(
                f"attempt {number} took {now_s - opened_s:.0f} s, its deadline was {self.deadline_s:.0f} s: "
                "its files may be gone; raise gc.commit_deadline_s if jobs need longer"
            )

    def close(self, number: int) -> None:
        """Close an attempt that has committed or never will. Closing it twice does nothing."""
        self._opened_s.pop(number, None)
        self._owners.pop(number, None)

    def close_of(self, owner: int) -> None:
        """Close all attempts of an owner that is gone."""
        for number in [n for n, whose in self._owners.items() if whose == owner]:
            self.close(number)

    def oldest(self, now_s: float) -> int | None:
        """Return the lowest number that may still commit, None when there is none.

        Forgets attempts whose deadline has passed.
        """
        late = [n for n, opened_s in self._opened_s.items() if now_s - opened_s > self.deadline_s]
        for number in late:
            self.close(number)
        return min(self._opened_s, default=None)
