"""A simulator that finds nothing proves nothing: it must find every planted bug, and under its right name."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted import BUGS, Bug

from elanus.core.invariants import INVARIANTS
from elanus.sim.run import run_seed


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    found = []
    for seed in range(bug.first_seed, bug.first_seed + bug.seeds):
        outcome = run_seed(seed)
        found.append(outcome.broken)
        if outcome.broken in bug.found_as:
            assert outcome.story, "a finding tells how it came about"
            return
    pytest.fail(f"{bug.name} was not found in {bug.seeds} seeds: {found}")


def test_the_page_lists_every_invariant_and_every_planted_bug() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reliability.md").read_text()
    for name, sentence in INVARIANTS.items():
        assert f"| {name} | {sentence} |" in page
    for bug in BUGS:
        assert f"| {bug.name} | {', '.join(sorted(bug.found_as))} |" in page
