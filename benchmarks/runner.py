"""The order of a run: load every system, then put each question to all of them before the next.

All servers stay up from their first measure to the end of the run; idle, they take a few percent of a core.
So the figures that are compared with each other were taken within seconds of each other, and whatever else
the machine was doing at that time, it did to all of them. Only loading (start, insert, build) is done by
one system without a pause, as it would be in use.

A measure that fails is written down and the run goes on, so that one system's gap does not cost the others'
figures; a system that cannot be loaded leaves the run. The results file is rewritten after every measure: an
interrupted run keeps what it has.
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
from benchmarks.measures import LOADING, QUESTIONS, Measure
from benchmarks.processes import wait_for_quiet
from benchmarks.results import Results, SystemResult
from benchmarks.settings import BENCH_FOLDER, Settings
from benchmarks.systems import ENVIRONMENTS, Place, Server, make
from benchmarks.yardstick import machine_speed

#: How long a server may go on working after a measure before the next system is asked.
QUIET_LIMIT_S = 20.0
#: The same after loading a large set: Milvus looks every minute whether it should merge segments, and then
#: indexes for minutes.
LARGE_ROWS = 500_000
LARGE_QUIET_S, LARGE_QUIET_LIMIT_S = 70, 1200.0


@dataclass(frozen=True)
class Plan:
    """The choice of what to run.

    Attributes:
        systems: names, in order.
        data: the vectors.
        settings: the numbers.
        out: the results file.
        questions: what is asked of each system once it is loaded.
        elanus_config: configuration file for Elanus, or None.
        keep: leave the servers' folders and logs behind.
    """

    systems: Sequence[str]
    data: Dataset
    settings: Settings
    out: Path
    questions: Sequence[Measure] = QUESTIONS
    elanus_config: Path | None = None
    keep: bool = False


def run(plan: Plan) -> Results:
    """Measure every system of the plan; the results are also in ``plan.out``."""
    with _run_folder(plan) as folder, ExitStack() as started, _progress() as progress:
        plan.data.write(folder / "vectors")
        task = progress.add_task("", total=len(plan.systems) * (len(LOADING) + len(plan.questions)))
        current = _Run(plan, Results.begin(plan.data, plan.settings), folder, started, progress, task)
        loaded = [bench for name in plan.systems if (bench := current.load(name)) is not None]
        for measure in plan.questions:
            for bench in loaded:
                current.ask(measure, bench)
    return current.results


@dataclass(frozen=True)
class _Run:
    """A run under way; what it starts is ended with `started`."""

    plan: Plan
    results: Results
    folder: Path
    started: ExitStack
    progress: Progress
    task: TaskID

    def load(self, name: str) -> Bench | None:
        """Set one system up and put the data into it; None when that fails, with the reason written down."""
        self.results.systems[name] = SystemResult()
        with ExitStack() as own:
            try:
                bench = self._set_up(name, own)
            except (OSError, RuntimeError) as error:
                self._note(name, "set up", str(error))
            else:
                if all(self.ask(measure, bench) for measure in LOADING):
                    if bench.server is not None:
                        self._say(name, "coming to rest")
                        self._wait_until_merged(bench.server)
                    self.started.push(own.pop_all())
                    return bench
        return None

    def _wait_until_merged(self, server: Server) -> None:
        if len(self.plan.data.train) < LARGE_ROWS:
            wait_for_quiet(server.usage, QUIET_LIMIT_S)
        else:
            wait_for_quiet(server.usage, LARGE_QUIET_LIMIT_S, quiet_s=LARGE_QUIET_S)

    def ask(self, measure: Measure, bench: Bench) -> bool:
        """Take one measure of one system; returns whether it succeeded."""
        name, failure = bench.system.name, None
        if bench.server is not None or not measure.server_only:
            self._say(name, measure.name)
            self.results.systems[name].yardstick.append(machine_speed())
            failure = _ask(measure, bench)
        if failure is not None:
            self._note(name, measure.name, failure)
        self.results.write(self.plan.out)
        self.progress.advance(self.task)
        return failure is None

    def _set_up(self, name: str, own: ExitStack) -> Bench:
        if name in ENVIRONMENTS:
            self._say(name, "installing")
            ENVIRONMENTS[name].ensure()
        place = Place(self.folder / name, self.folder / "vectors")
        place.folder.mkdir()
        system = make(name, place, self.plan.elanus_config)
        own.callback(system.close)
        result, settings = self.results.systems[name], self.plan.settings
        result.version = system.version
        [main] = own.enter_context(
            clients(system, 1, place.client_log, settings.call_timeout_s, connected=False)
        )
        server = system if isinstance(system, Server) else None
        return Bench(system, server, place, self.plan.data, settings, main, result.values)

    def _say(self, name: str, text: str) -> None:
        self.progress.update(self.task, description=f"{name}: {text}")

    def _note(self, name: str, what: str, reason: str) -> None:
        self.results.systems[name].failures[what] = reason
        self.results.write(self.plan.out)
        self.progress.console.print(f"{name}: {what} failed: {reason}", markup=False)


def _ask(measure: Measure, bench: Bench) -> str | None:
    """Take one measure and let the server come to rest; returns what went wrong."""
    try:
        bench.values |= measure.run(bench)
        if bench.server is not None:
            bench.server.check_running()
            if measure not in LOADING:
                wait_for_quiet(bench.server.usage, QUIET_LIMIT_S)
    except Exception as error:  # noqa: BLE001 - written down, shown on the page
        return _reason(error, bench)
    return None


def _reason(error: Exception, bench: Bench) -> str:
    """The error, or the end of the server if that is its cause."""
    try:
        if bench.server is not None:
            bench.server.check_running()
    except RuntimeError as death:
        return str(death)
    return f"{type(error).__name__}: {error}".strip()


def _progress() -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))


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
