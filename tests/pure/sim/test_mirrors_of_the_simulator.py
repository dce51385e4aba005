"""Runs of a standalone with a serving process, and bugs of mirrors that they must find."""

from __future__ import annotations

import pytest

from elanus.core.ids import CollectionID
from elanus.querycoord.mirrors import Mirrors
from elanus.sim.mirrors import draw_mirrored, has_mirror
from elanus.sim.plan import MIRRORED, USUAL, Profile, draw_reading
from elanus.sim.run import Outcome, run
from elanus.sim.scenario import FaultKind

pytestmark = pytest.mark.sim

SEED = 12
_IMPORTS = Profile(
    clients=6,
    alias_clients=0,
    auto_id_clients=0,
    import_clients=4,
    partition_clients=0,
    clone_clients=0,
    only_lags=False,
    work_s=30.0,
    pause_s=0.3,
    faults={},
)
_OF_IMPORTS = (6, 20, 13, 22, 31)
"""Seeds of which any finds it: the moment must lie between two reads."""


def mirrored(seed: int, profile: Profile = USUAL) -> Outcome:
    return run(draw_mirrored(seed, profile), MIRRORED)


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
    runs = (mirrored(seed, _IMPORTS) for seed in _OF_IMPORTS if has_mirror(seed))
    assert next((run.broken for run in runs if run.broken), "") == "VIS1"


def test_seeds_of_several_query_nodes_have_no_such_run() -> None:
    others = [seed for seed in range(1, 40) if not has_mirror(seed)]
    assert others
    assert all(draw_reading(seed).is_cluster for seed in others)
    with pytest.raises(ValueError, match="several query nodes"):
        draw_mirrored(others[0])
