"""`elanus sim`: many seeds, one after the other, and what came of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from elanus.core.invariants import INVARIANTS
from elanus.sim.run import Outcome, run_seed


def run_seeds(first: int, count: int, say: Callable[[str], None]) -> bool:
    """Run the seeds; ``say`` gets each line of the report. Whether every one kept every invariant."""
    broken: Counter[str] = Counter()
    operations, virtual_s, wall_s = 0, 0.0, 0.0
    for seed in range(first, first + count):
        outcome = run_seed(seed)
        operations += outcome.operations
        virtual_s += outcome.virtual_s
        wall_s += outcome.wall_s
        if outcome.broken:
            broken[outcome.broken] += 1
            tell(outcome, say)
    say(
        f"{count} seeds from {first} on: {operations} operations in {virtual_s:.0f} s of virtual time, "
        f"{wall_s:.0f} s of real time ({wall_s / max(1, count):.2f} s a seed)"
    )
    for name, times in sorted(broken.items()):
        say(f"{name} broken in {times}: {INVARIANTS[name]}")
    if not broken:
        say("every invariant was kept")
    return not broken


def tell(outcome: Outcome, say: Callable[[str], None]) -> None:
    """One finding: its seed, what is broken, and the story of the rows concerned."""
    say(f"seed {outcome.seed}: {outcome.message}")
    for line in outcome.story:
        say(f"    {line}")
    say(f"again: elanus sim --first {outcome.seed} --seeds 1")
