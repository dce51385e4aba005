"""Runs of a standalone with a serving process, and bugs of mirrors that they must find."""

from __future__ import annotations

import pytest

from elanus.core.ids import CollectionID
from elanus.querycoord.mirrors import Mirrors
from elanus.sim.mirrors import draw_mirrored, has_mirror
from elanus.sim.plan import MIRRORED, draw_reading
from elanus.sim.run import Outcome, run
from elanus.sim.scenario import FaultKind

pytestmark = pytest.mark.sim

SEED, OF_IMPORTS = 12, 13


def mirrored(seed: int) -> Outcome:
    return run(draw_mirrored(seed), MIRRORED)


@pytest.mark.timeout(300)
def test_a_serving_process_reads_what_the_others_read() -> None:
    outcome = mirrored(SEED)
    assert outcome.broken == "", outcome.message
    assert outcome.counts["reads of a mirror"] > 50
    assert outcome.counts["reads passed on"] > 0
    assert outcome.faults[FaultKind.CRASH] >= 3


@pytest.mark.timeout(300)
def test_reads_that_go_on_there_while_an_import_becomes_visible_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def nothing(self: Mirrors, collection_id: CollectionID) -> None:
        """The coordinator forgets to take the grants back."""

    monkeypatch.setattr(Mirrors, "withhold", nothing)
    assert mirrored(OF_IMPORTS).broken == "VIS1"


def test_seeds_of_several_query_nodes_have_no_such_run() -> None:
    others = [seed for seed in range(1, 40) if not has_mirror(seed)]
    assert others
    assert all(draw_reading(seed).is_cluster for seed in others)
    with pytest.raises(ValueError, match="several query nodes"):
        draw_mirrored(others[0])
