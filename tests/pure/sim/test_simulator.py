"""The simulator keeps its promises: the same seed is the same run, and it finds nothing where nothing is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from elanus.core.invariants import INVARIANTS, InvariantBroken
from elanus.sim.chance import NO_FAULTS
from elanus.sim.report import run_seeds
from elanus.sim.run import run_seed

SEEDS = 50
_PRINT_DIGEST = "from elanus.sim.run import run_seed; print(run_seed({seed}).digest)"


@pytest.mark.timeout(600)
def test_every_invariant_is_kept_whatever_fails() -> None:
    lines: list[str] = []
    assert run_seeds(1, SEEDS, lines.append), "\n".join(lines)


def test_without_faults_nothing_fails() -> None:
    outcome = run_seed(1, NO_FAULTS)
    assert outcome.broken == "", outcome.message
    assert outcome.operations > 200


def test_the_same_seed_is_the_same_run() -> None:
    first, second = run_seed(5), run_seed(5)
    assert first.digest == second.digest
    assert first.virtual_s == second.virtual_s
    assert run_seed(6).digest != first.digest


def test_a_run_does_not_depend_on_the_order_of_hashes() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", _PRINT_DIGEST.format(seed=7)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("0", "1", "4711")
    }
    assert len(digests) == 1


def test_the_catalogue_has_a_sentence_for_every_name() -> None:
    assert all(sentence.endswith(".") for sentence in INVARIANTS.values())
    error = InvariantBroken("VIS1", "key 7 is missing", (7,))
    assert str(error).startswith("VIS1: key 7 is missing (")
    with pytest.raises(KeyError):
        InvariantBroken("VIS99", "no such invariant")
