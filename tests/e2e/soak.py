"""A long test: random sequences of kills, pauses and restarts under load, and a check after each.

``python tests/e2e/soak.py --minutes 30 --seed N`` runs it and writes ``docs/soak.md``. Each *turn* takes one
to three strikes (`strikes`) by seed, some at the same time, repairs them, and waits until every proxy serves
reads and writes again; then the load is stopped and all rows are compared with what was acknowledged. A
turn that goes wrong is reported, its cluster is kept for a look, and the next one begins with a new cluster.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cluster_load import READ, WRITE
from strikes import ROLLING, STRIKES, Stage, Strike

PAGE = Path(__file__).parents[2] / "docs" / "soak.md"
STRIKES_MAX = 3
BETWEEN_STRIKES_S = 6.0
BEFORE_REPAIR_S = 8.0
SETTLED_REQUESTS = 10
INTRODUCTION = """# Soak

Written by `make soak`: a cluster of two proxies, three query nodes, a data node, four coordinators and a
standby for each of them, on etcd, NATS JetStream and Spark, under a load that writes, deletes, reads and
flushes through both proxies. One to three of its processes and services at a time are killed, paused past
their lease, or restarted. After each such turn every proxy has to serve again, and all rows are compared
with what was acknowledged: none lost, none doubled, nothing deleted back, `count(*)` exact. At every moment
of a turn, a strong read of rows that nobody touches has to be complete.
"""


@dataclass(slots=True)
class Report:
    seed: int
    took_s: float = 0.0
    turns: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    succeeded: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    recovered_s: list[float] = field(default_factory=list)
    rows: int = 0
    failures: list[str] = field(default_factory=list)


def soak(minutes: float, seed: int, directory: Path) -> Report:
    report, chance = Report(seed), random.Random(seed)
    began_s = time.monotonic()
    stage: Stage | None = None
    for turn in itertools.count(1):
        report.took_s = time.monotonic() - began_s
        if report.took_s > 60 * minutes:
            break
        report.turns = turn
        struck: list[str] = []
        try:
            if stage is None:
                stage = Stage(directory / f"from-{turn}").start(seed + turn)
            _turn(stage, chance, report, struck)
            _say(f"turn {turn}: {', '.join(struck)}: well, after {report.recovered_s[-1]:.1f} s")
        except Exception as error:  # noqa: BLE001 - whatever went wrong is what the report is for
            text = f"turn {turn} ({', '.join(struck)}): {type(error).__name__}: {_first(str(error))}"
            _say(f"{text}\n{traceback.format_exc()}")
            report.failures.append(text)
            if stage is not None:
                stage.close()
                stage = None
    if stage is not None:
        stage.close()
    return report


def _turn(stage: Stage, chance: random.Random, report: Report, struck: list[str]) -> None:
    load = stage.load
    since_s = load.mark()
    load.begin()
    try:
        load.wait_for(SETTLED_REQUESTS, load.mark())
        repairs = list(_strikes(stage, chance, report, struck))
        time.sleep(chance.uniform(0.0, BEFORE_REPAIR_S))
        chance.shuffle(repairs)
        for repair in repairs:
            repair()
        repaired_s = load.mark()
        load.wait_for(SETTLED_REQUESTS, repaired_s)
        report.recovered_s.append(load.mark() - repaired_s)
        span = load.span(since_s)
        report.succeeded.update(span.succeeded)
        report.failed.update(span.failed)
    finally:
        load.end()
    load.check()
    report.rows = max(report.rows, sum(len(writer.book.certain) for writer in load.writers))


def _strikes(
    stage: Stage, chance: random.Random, report: Report, struck: list[str]
) -> list[Callable[[], None]]:
    repairs: list[Callable[[], None]] = []
    victims: set[str] = set()
    wanted: list[Strike] = chance.sample((*STRIKES, *ROLLING), chance.randint(1, STRIKES_MAX))
    for strike in wanted:
        # when some are gone already, nobody may be there to ask who does what
        known = strike.victim if strike.victim != "querynode" else "querynode1"
        victim = stage.find(strike.victim) if not victims else known
        if victim in victims:
            continue
        victims.add(victim)
        struck.append(strike.name)
        report.struck[strike.name] += 1
        repairs.append(strike.how(stage, victim))
        time.sleep(chance.uniform(0.0, BETWEEN_STRIKES_S))
    return repairs


def page(report: Report) -> str:
    lines = [
        INTRODUCTION,
        f"- Seed {report.seed}, {report.took_s / 60:.0f} minutes, {report.turns} turns, "
        f"{sum(report.struck.values())} strikes.",
        f"- Requests that succeeded: {report.succeeded[WRITE]} writes, {report.succeeded[READ]} reads; "
        f"that failed and were repeated: {report.failed[WRITE]} writes, {report.failed[READ]} reads.",
        f"- Rows at the end of a turn: up to {report.rows}.",
    ]
    if report.recovered_s:
        recovered = sorted(report.recovered_s)
        lines.append(
            f"- From the last repair to {SETTLED_REQUESTS} reads and writes at every proxy: median "
            f"{recovered[len(recovered) // 2]:.1f} s, at most {recovered[-1]:.1f} s."
        )
    lines.append(f"- Turns that went wrong: {len(report.failures)}.")
    lines += [f"  - {' '.join(text.split())}" for text in report.failures]
    lines += ["", "| strike | times |", "|---|---|"]
    lines += [f"| {name} | {times} |" for name, times in sorted(report.struck.items())]
    return "\n".join(lines) + "\n"


def _first(text: str) -> str:
    """The failure, without the output of the processes."""
    return text.partition("; it said")[0][:500]


def _say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    directory = Path(tempfile.mkdtemp(prefix="elanus-soak-"))
    report = soak(asked.minutes, asked.seed, directory)
    PAGE.write_text(page(report))
    if not report.failures:
        shutil.rmtree(directory)
    return len(report.failures) > 0


if __name__ == "__main__":
    sys.exit(main())
