"""`elanus sim`: runs many seeds on all processors, and reports the results.

Seeds are independent, so each processor takes the next one. Findings are reported as they occur: the first of
each invariant is shrunk, written to a file, and reported with its story. An interrupt ends with the summary
so far.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import count as numbers_from
from itertools import islice
from pathlib import Path

from elanus.core.invariants import INVARIANTS
from elanus.server.memory import fix_allocator
from elanus.sim.client_plans import ADDED_OPERATIONS
from elanus.sim.plan import OPERATIONS, OPERATIONS_OF_ALIASES, USUAL, Profile, draw, draw_reading
from elanus.sim.run import Outcome, run
from elanus.sim.scenario import Scenario, save
from elanus.sim.shrink import RUNS_MAX, shrink

Say = Callable[[str], None]
_AHEAD = 2
"""Seeds submitted per process: enough that no process waits for the next."""


@dataclass(slots=True)
class Summary:
    """The totals of all runs. ``counts`` and ``faults`` as in `Outcome`; ``broken``: runs per invariant.

    ``cpu_s``: processor time of all runs; ``elapsed_s``: how long ``processes`` took for them.
    """

    runs: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    processes: int = 1
    elapsed_s: float = 0.0
    interrupted: bool = False

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.counts.update(outcome.counts)
        self.faults.update(outcome.faults)
        self.virtual_s += outcome.virtual_s
        self.cpu_s += outcome.cpu_s
        if outcome.broken:
            self.broken[outcome.broken] += 1

    def lines(self) -> list[str]:
        kinds = (*OPERATIONS, *OPERATIONS_OF_ALIASES, *ADDED_OPERATIONS)
        operations = {kind: self.counts[kind] for kind in kinds if self.counts[kind]}
        events = {kind: count for kind, count in sorted(self.counts.items()) if kind not in kinds}
        runs = max(1, self.runs)
        lines = [
            f"{self.runs:,} runs of {self.virtual_s / runs:.0f} s of virtual time each",
            f"{self.elapsed_s / runs:.2f} s a run in {self.processes} processes, "
            f"{self.cpu_s / runs:.2f} s of one processor's time",
            f"{sum(operations.values()):,} operations: {_listed(operations)}",
            f"{sum(self.faults.values()):,} faults: {_listed(dict(self.faults.most_common()))}",
            f"seen: {_listed(events)}",
        ]
        lines += [
            f"{name} broken in {times} runs: {INVARIANTS[name]}"
            for name, times in sorted(self.broken.items())
        ]
        if not self.broken and self.runs:
            lines.append("every invariant was kept")
        return lines


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in counts.items()) or "none"


def run_seeds(
    first: int,
    count: int,
    say: Say,
    *,
    processes: int | None = None,
    profile: Profile = USUAL,
    only_clusters: bool = False,
    findings: Path | None = None,
    progress: Callable[[], None] = lambda: None,
) -> Summary:
    """Run the seeds. ``say`` receives each line about a finding; ``progress`` is called after each seed.

    ``profile``: what is drawn for them. ``only_clusters``: seeds with one query node are passed over, and not
    counted. ``findings``: where shrunk scenarios are written; None: nothing is shrunk. ``processes``: the
    number of processors by default. Ctrl-C ends the runs early, with the summary so far.
    """
    processes = processes or os.cpu_count() or 1
    summary, began_s = Summary(processes=processes), time.perf_counter()
    seeds = (seed for seed in numbers_from(first) if not only_clusters or draw_reading(seed).is_cluster)
    scenarios = (draw(seed, profile) for seed in islice(seeds, count))
    with _pool(processes) as pool:
        try:
            for outcome in _outcomes(pool, scenarios, processes * _AHEAD):
                is_first = outcome.broken and not summary.broken[outcome.broken]
                summary.add(outcome)
                progress()
                if outcome.broken:
                    say(f"seed {outcome.seed}: {outcome.message}")
                if is_first and findings is not None:
                    _explain(pool, draw(outcome.seed, profile), outcome, findings, say)
        except KeyboardInterrupt:
            summary.interrupted = True
            pool.shutdown(wait=False, cancel_futures=True)
    summary.elapsed_s = time.perf_counter() - began_s
    return summary


def _pool(processes: int) -> ProcessPoolExecutor:
    """A pool of freshly started processes: Arrow's threads do not survive a fork."""
    return ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=_prepare)


def _prepare() -> None:
    """Set up a new process: it keeps freed memory for the next files, never collects imported objects,
    ignores Ctrl-C, and ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    fix_allocator()
    gc.disable()  # each run is followed by a collection and needs no other
    gc.collect()
    gc.freeze()


def _end_with_parent() -> None:
    """Exit when the parent has ended: a killed parent does not notify its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run_one(scenario: Scenario) -> Outcome:
    outcome = run(scenario)
    gc.collect()
    return outcome


def _outcomes(pool: Executor, scenarios: Iterable[Scenario], ahead: int) -> Iterator[Outcome]:
    """Yield outcomes in the order in which runs end."""
    running: set[Future[Outcome]] = set()
    waiting = iter(scenarios)
    while True:
        running |= {pool.submit(_run_one, scenario) for scenario in islice(waiting, ahead - len(running))}
        if not running:
            return
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in sorted(done, key=lambda d: d.result().seed):
            yield future.result()


def _explain(pool: Executor, scenario: Scenario, outcome: Outcome, findings: Path, say: Say) -> None:
    """Shrink a finding, save it to a file, and report its story."""
    say(f"shrinking the scenario of seed {outcome.seed}, in up to {RUNS_MAX} runs …")
    shrunk = shrink(
        scenario,
        outcome,
        rerun=lambda candidate: pool.submit(_run_one, candidate).result(),
        say=say,
    )
    file = findings / f"{outcome.broken}-{outcome.seed}.json"
    save(shrunk.scenario, file)
    print_outcome(shrunk.scenario, shrunk.outcome, say)
    say(f"after {shrunk.runs} runs; again: elanus sim --replay {file}")


def print_outcome(scenario: Scenario, outcome: Outcome, say: Say) -> None:
    """Report one finding: the broken invariant, the scenario, and the story of the rows concerned."""
    say(f"seed {outcome.seed}: {outcome.message or 'every invariant was kept'}")
    say(f"  the scenario: {len(scenario.operations)} operations, {len(scenario.faults)} faults")
    for line in scenario.describe():
        say(f"    {line}")
    if outcome.story:
        say("  the story:")
    for line in outcome.story:
        say(f"    {line}")
