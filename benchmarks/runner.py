"""The order of a run: make ready, measure every system in turn, write down each answer as it comes.

A measure that fails is written down and the run goes on, so that one system's gap does not cost the others'
figures. Only what later measures stand on (start, insert, build) ends a system's turn. The results file is
rewritten after every measure: an interrupted run keeps what it has.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from benchmarks.bench import Bench
from benchmarks.clients import clients
from benchmarks.dataset import Dataset
from benchmarks.measures import MEASURES, Measure
from benchmarks.results import Results, SystemResult
from benchmarks.settings import BENCH_FOLDER, Settings
from benchmarks.systems import ENVIRONMENTS, Place, Server, make
from benchmarks.yardstick import machine_speed


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
        systems: names, in order.
        data: the vectors.
        settings: the numbers.
        out: the results file.
        elanus_config: configuration file for Elanus, or None.
        keep: leave the servers' folders and logs behind.
    """

    systems: Sequence[str]
    data: Dataset
    settings: Settings
    out: Path
    elanus_config: Path | None = None
    keep: bool = False


def run(plan: Plan) -> Results:
    """Measure every system of the plan; the results are also in ``plan.out``."""
    results = Results.begin(plan.data, plan.settings)
    results.write(plan.out)
    console = Console(stderr=True)
    with _progress(console) as progress, _run_folder(plan) as folder:
        task = progress.add_task("", total=len(plan.systems) * len(MEASURES))
        plan.data.write(folder / "vectors")
        for name in plan.systems:
            _measure_system(_Turn(plan, results, progress, task, name, folder))
    return results


@dataclass(frozen=True)
class _Turn:
    """One system's turn in a run."""

    plan: Plan
    results: Results
    progress: Progress
    task: TaskID
    name: str
    folder: Path

    def say(self, text: str) -> None:
        """Show what is going on."""
        self.progress.update(self.task, description=f"{self.name}: {text}")


def _measure_system(turn: _Turn) -> None:
    """Set one system up, ask it everything, take it down; whatever goes wrong is written down."""
    result = turn.results.systems[turn.name] = SystemResult()
    done = turn.progress.tasks[turn.task].completed
    try:
        if turn.name in ENVIRONMENTS:
            turn.say("installing")
            ENVIRONMENTS[turn.name].ensure()
        turn.say("the machine's speed")
        result.yardstick.append(machine_speed())
        _with_system(turn, result)
        result.yardstick.append(machine_speed())
    except (OSError, RuntimeError) as error:
        _note(turn, result, "set up", str(error))
    turn.progress.update(turn.task, completed=done + len(MEASURES))
    turn.results.write(turn.plan.out)


def _with_system(turn: _Turn, result: SystemResult) -> None:
    plan, place = turn.plan, Place(turn.folder / turn.name, turn.folder / "vectors")
    place.folder.mkdir()
    with ExitStack() as stack:
        system = make(turn.name, place, plan.elanus_config)
        stack.callback(system.close)
        result.version = system.version
        timeout_s = plan.settings.call_timeout_s
        [main] = stack.enter_context(clients(system, 1, place.client_log, timeout_s, connected=False))
        server = system if isinstance(system, Server) else None
        _ask_all(turn, Bench(system, server, place, plan.data, plan.settings, main, result.values), result)


def _ask_all(turn: _Turn, bench: Bench, result: SystemResult) -> None:
    for measure in MEASURES:
        if bench.server is not None or not measure.server_only:
            turn.say(measure.name)
            failure = _ask(measure, bench)
            if failure is not None:
                _note(turn, result, measure.name, failure)
                if measure.vital:
                    return
            turn.results.write(turn.plan.out)
        turn.progress.advance(turn.task)


def _note(turn: _Turn, result: SystemResult, what: str, reason: str) -> None:
    result.failures[what] = reason
    turn.progress.console.print(f"{turn.name}: {what} failed: {reason}", markup=False)


def _ask(measure: Measure, bench: Bench) -> str | None:
    """Take one measure; returns what went wrong."""
    try:
        bench.values |= measure.run(bench)
        _check_running(bench)
    except Exception as error:  # noqa: BLE001 - written down, shown on the page
        return _reason(error, bench)
    return None


def _reason(error: Exception, bench: Bench) -> str:
    """The error, or the end of the server if that is what lies behind it."""
    try:
        _check_running(bench)
    except RuntimeError as death:
        return str(death)
    return f"{type(error).__name__}: {error}".strip()


def _check_running(bench: Bench) -> None:
    if bench.server is not None:
        bench.server.check_running()


def _progress(console: Console) -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


@contextmanager
def _run_folder(plan: Plan) -> Iterator[Path]:
    """A fresh folder for everything that the run writes, removed afterwards unless it is to be kept."""
    folder = (BENCH_FOLDER / "run").absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        if not plan.keep:
            shutil.rmtree(folder)
