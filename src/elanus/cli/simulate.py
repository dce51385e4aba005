"""`elanus sim`: run the simulator, with a progress bar."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from elanus.sim.report import print_outcome, run_seeds
from elanus.sim.run import run
from elanus.sim.scenario import load


def simulate(first: int, seeds: int, processes: int | None, findings: Path) -> bool:
    """Run the seeds and print the results. Returns whether all were run and every invariant held."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    columns = (TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("seeds", total=seeds)
        summary = run_seeds(
            first,
            seeds,
            console.print,
            processes=processes,
            findings=findings,
            progress=lambda: bar.advance(task),
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
