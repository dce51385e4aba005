"""The simulator keeps its promises: the same seed is the same run, and it finds nothing where nothing is."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from elanus.core.invariants import INVARIANTS, InvariantBroken
from elanus.sim.client_plans import ADDED_OPERATIONS
from elanus.sim.plan import BRIEF, CALM, FAULTS, OPERATIONS, draw, draw_reading
from elanus.sim.report import Summary, run_seeds
from elanus.sim.run import run

pytestmark = pytest.mark.sim

SEEDS, FURTHER = 14, 66
_PRINT_DIGESTS = """
import sys
from elanus.sim.plan import BRIEF, USUAL, draw
from elanus.sim.run import run
print([run(draw(int(seed), BRIEF if int(seed) >= 500_000 else USUAL)).digest for seed in sys.argv[1:]])
"""


@pytest.fixture(scope="module")
def summary() -> Summary:
    lines: list[str] = []
    found = run_seeds(1, SEEDS, lines.append)
    assert not found.broken, "\n".join(lines)
    return found


@pytest.mark.timeout(900)
def test_every_invariant_is_kept_whatever_fails(summary: Summary) -> None:
    assert summary.runs == SEEDS
    assert summary.lines()[-1] == "every invariant was kept"


@pytest.mark.timeout(900)
def test_all_that_can_be_done_and_all_that_can_fail_occurs(summary: Summary) -> None:
    assert summary.faults.keys() == FAULTS.keys()
    assert summary.counts.keys() > {*OPERATIONS, *ADDED_OPERATIONS}
    assert summary.counts["imports completed"] > SEEDS
    assert summary.counts["writes next to a full pchannel"] > SEEDS
    for event in ("reads judged", "reads repeated", "indexes built", "versions announced", "vchannels moved"):
        assert summary.counts[event] >= SEEDS


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_invariant_is_kept_under_further_seeds() -> None:
    lines: list[str] = []
    found = run_seeds(SEEDS + 1, FURTHER, lines.append)
    assert not found.broken, "\n".join(lines)


def test_brief_scenarios_of_clusters_only() -> None:
    lines: list[str] = []
    found = run_seeds(500_000, 6, lines.append, processes=1, profile=BRIEF, only_clusters=True)
    assert not found.broken, "\n".join(lines)
    passed_over = [seed for seed in range(500_000, 500_006) if not draw_reading(seed).is_cluster]
    assert passed_over, "a range of these would have runs with one query node"
    assert found.runs == 6
    assert found.counts["segments flushed"] > 6
    assert found.faults["query channel slow"] > 0


def test_without_faults_nothing_fails() -> None:
    outcome = run(draw(1, CALM))
    assert outcome.broken == "", outcome.message
    assert not outcome.faults
    assert sum(outcome.counts[kind] for kind in OPERATIONS if kind in outcome.counts) > 200


def test_a_run_depends_only_on_its_seed() -> None:
    """Not on the order of hashes, on the run before, or on the process."""
    seeds = (500_000, 7, 500_001, 500_002, 500_003)
    with ThreadPoolExecutor() as threads:
        one_way = threads.submit(digests, *seeds, hash_seed="0")
        other_way = threads.submit(digests, *seeds[::-1], hash_seed="4711")
    found = one_way.result()
    assert len(set(found)) == len(seeds)
    assert other_way.result() == found[::-1]


def digests(*seeds: int, hash_seed: str) -> list[str]:
    """The digests of runs in a process of their own: of brief scenarios from seed 500,000 on."""
    printed = subprocess.run(
        [sys.executable, "-c", _PRINT_DIGESTS, *map(str, seeds)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    return [str(digest) for digest in ast.literal_eval(printed)]


def test_the_catalog_has_a_sentence_for_every_name() -> None:
    assert all(sentence.endswith(".") for sentence in INVARIANTS.values())
    error = InvariantBroken("VIS1", "key 7 is missing", (7,))
    assert str(error).startswith("VIS1: key 7 is missing (")
    with pytest.raises(KeyError):
        InvariantBroken("VIS99", "no such invariant")
