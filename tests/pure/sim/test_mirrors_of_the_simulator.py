"""Runs of a standalone with a serving process, and bugs of mirrors that they must find."""

from __future__ import annotations

import pytest

from elanus.sim.mirrors import draw_mirrored, has_mirror
from elanus.sim.plan import MIRRORED, draw_reading
from elanus.sim.run import Outcome, run
from elanus.sim.scenario import FaultKind

pytestmark = pytest.mark.sim

SEEDS = (1, 4)
FINDING = 4


def mirrored(seed: int) -> Outcome:
    return run(draw_mirrored(seed), MIRRORED)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_serving_process_reads_what_the_others_read(seed: int) -> None:
    outcome = mirrored(seed)
    assert outcome.broken == "", outcome.message
    assert outcome.counts["reads of a mirror"] > 50
    assert outcome.counts["reads passed on"] > 0
    assert outcome.faults[FaultKind.CRASH] >= 3


def test_seeds_of_several_query_nodes_have_no_such_run() -> None:
    others = [seed for seed in range(1, 40) if not has_mirror(seed)]
    assert others
    assert all(draw_reading(seed).is_cluster for seed in others)
    with pytest.raises(ValueError, match="several query nodes"):
        draw_mirrored(others[0])
