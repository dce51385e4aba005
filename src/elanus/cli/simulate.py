"""`elanus sim`: run the simulator, with a progress bar, or a line a minute where there is no terminal."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from elanus.sim.plan import BRIEF, USUAL
from elanus.sim.report import print_outcome, run_seeds
from elanus.sim.run import run
from elanus.sim.scenario import load

_SAY_EACH_S = 60.0


def simulate(
    first: int, seeds: int, processes: int | None, findings: Path, *, is_brief: bool, only_clusters: bool
) -> bool:
    """Run the seeds and print the results. Returns whether all were run and every invariant held."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    columns = (TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    ended, said_s = 0, time.monotonic()
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("seeds", total=seeds)

        def progress() -> None:
            nonlocal ended, said_s
            ended += 1
            bar.advance(task)
            if not console.is_terminal and time.monotonic() - said_s > _SAY_EACH_S:
                console.print(f"{ended:,} of {seeds:,} seeds")
                said_s = time.monotonic()

        summary = run_seeds(
            first,
            seeds,
            console.print,
            processes=processes,
            profile=BRIEF if is_brief else USUAL,
            only_clusters=only_clusters,
            findings=findings,
            progress=progress,
        )
    if summary.interrupted:
        console.print(f"interrupted after {summary.runs} of {seeds} seeds")
    for line in summary.lines():
        console.print(line)
    return not summary.broken and not summary.interrupted


def replay_scenario(file: Path) -> bool:
    """Run a scenario from a file and print its story. Returns whether every invariant held.

    Raises `InvalidParameter` for a file without a scenario.
    """
    console = Console(soft_wrap=True, highlight=False, markup=False)
    scenario = load(file)
    outcome = run(scenario)
    print_outcome(scenario, outcome, console.print)
    return not outcome.broken
