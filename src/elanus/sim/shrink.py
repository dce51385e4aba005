"""Reduces a failing scenario to a small one that still fails.

Delta debugging (A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE
28(2), 2002) over the parts of a scenario: leave a part out, run the rest, and keep it when the same invariant
is still broken. Large parts come first (everything after the finding, whole clients, all faults of a kind),
then halves, quarters and so on, down to single operations and faults. The result is small but not minimal: it
ends when no single part can be left out, or when its runs are used up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from elanus.sim.run import Outcome, run
from elanus.sim.scenario import Fault, Operation, Scenario

Items = Sequence[Operation] | Sequence[Fault] | Sequence[Operation | Fault]

RUNS_MAX = 400
_SAID_EVERY = 25


@dataclass(frozen=True, slots=True)
class Shrunk:
    """``outcome``: that of the smallest scenario found; ``runs``: how many runs it took."""

    scenario: Scenario
    outcome: Outcome
    runs: int


def shrink(
    scenario: Scenario,
    outcome: Outcome,
    runs_max: int = RUNS_MAX,
    *,
    rerun: Callable[[Scenario], Outcome] = run,
    say: Callable[[str], None] = lambda line: None,
) -> Shrunk:
    """Shrink a scenario. ``outcome``: the result of running it, which must have broken something.

    ``rerun``: runs a candidate; ``say`` receives a line about progress now and then.
    """
    return _Shrinking(scenario, outcome, runs_max, rerun, say).done()


class _Shrinking:
    def __init__(
        self,
        scenario: Scenario,
        outcome: Outcome,
        runs_max: int,
        rerun: Callable[[Scenario], Outcome],
        say: Callable[[str], None],
    ) -> None:
        self._best, self._outcome = scenario, outcome
        self._runs, self._runs_max = 0, runs_max
        self._rerun, self._say = rerun, say

    def done(self) -> Shrunk:
        self._cut_the_end()
        if self._best.power_cut:
            self._try(replace(self._best, power_cut=False))
        size = -1
        while size != (size := len(self._best.operations) + len(self._best.faults)) and not self._is_spent():
            self._leave_out_groups(lambda: self._best.faults, lambda fault: fault.kind)
            self._leave_out_groups(lambda: self._best.operations, lambda operation: operation.client)
            self._leave_out(lambda: self._best.faults)
            self._leave_out(lambda: self._best.operations)
        self._cut_the_end()
        return Shrunk(self._best, self._outcome, self._runs)

    def _is_spent(self) -> bool:
        return self._runs >= self._runs_max

    def _try(self, candidate: Scenario) -> bool:
        """Whether the candidate still breaks the same invariant; if so, it becomes the best so far."""
        if self._is_spent():
            return False
        if self._runs and self._runs % _SAID_EVERY == 0:
            left = self._best
            self._say(
                f"  {self._runs} runs: {len(left.operations)} operations, {len(left.faults)} faults left"
            )
        self._runs += 1
        outcome = self._rerun(candidate)
        if outcome.broken != self._outcome.broken:
            return False
        self._best, self._outcome = candidate, outcome
        return True

    def _cut_the_end(self) -> None:
        """Leave out what was planned after the finding, and the time it would have taken."""
        best, found_s = self._best, self._outcome.virtual_s
        later_operations = [o for o in best.operations if o.at_s > found_s]
        later_faults = [f for f in best.faults if f.at_s > found_s]
        items: list[Operation | Fault] = [*best.operations, *best.faults]
        last_s = max([item.at_s for item in items if item.at_s <= found_s], default=0.0)
        if later_operations or later_faults or last_s < best.work_s:
            self._try(replace(best.without(later_operations, later_faults), work_s=last_s))

    def _leave_out_groups(self, items: Callable[[], Items], group_of: Callable[[Any], object]) -> None:
        for group in dict.fromkeys(map(group_of, items())):
            self._try(self._without([item for item in items() if group_of(item) == group]))

    def _leave_out(self, items: Callable[[], Items]) -> None:
        size = len(items())
        while size >= 1 and not self._is_spent():
            for part in _parts(tuple(items()), size):
                self._try(self._without(part))
            size = min(size // 2, len(items()))

    def _without(self, gone: Items) -> Scenario:
        return self._best.without(
            [item for item in gone if isinstance(item, Operation)],
            [item for item in gone if isinstance(item, Fault)],
        )


def _parts(items: Items, size: int) -> Iterator[Items]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
