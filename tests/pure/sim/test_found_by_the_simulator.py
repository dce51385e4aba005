"""Scenarios that the simulator found and cut down, kept for good."""

from __future__ import annotations

import pytest

from elanus.sim.run import run
from elanus.sim.scenario import Fault, FaultKind, Operation, Scenario

pytestmark = pytest.mark.sim


def test_a_drop_that_was_cut_off_is_finished_before_the_collection_is_said_to_be_gone() -> None:
    """The log was full when the drop was to be announced, so the client asked again. The answer was that
    there is no such collection, while a proxy that had it in its cache still answered."""
    scenario = Scenario(
        seed=511,
        work_s=17.945223670799525,
        operations=(
            Operation(16.848654890760113, 2, "renew_collection", "beta", 167),
            Operation(17.945223670799525, 1, "query_where", "beta", 96),
        ),
        faults=(
            Fault(16.60410187555591, FaultKind.LOG_FULL),
            Fault(16.78973994192876, FaultKind.DELAY_ANSWER, "", 0.774058),
        ),
        power_cut=False,
    )
    assert run(scenario).broken == ""


def test_a_pin_that_expired_by_a_step_of_the_clock_keeps_nothing() -> None:
    """The pin of a restore expired when the clock jumped by a day. A collection swept its files before its
    record was removed, and the judge still took the pin for one in force."""
    scenario = Scenario(
        seed=100001,
        work_s=32.26122968810477,
        operations=(
            Operation(26.06236904856226, 11, "insert", "epsilon", 395),
            Operation(27.822401654399183, 11, "clone", "epsilon", 396),
        ),
        faults=(
            Fault(28.341136668055235, FaultKind.STORE_SLOW, "", 1.363026),
            Fault(32.26122968810477, FaultKind.STEP_CLOCK, "", 86_400_000),
        ),
        power_cut=False,
    )
    assert run(scenario).broken == ""


def test_an_undropped_collection_lacks_a_partition_that_was_dropped_after_its_moment() -> None:
    """The files were complete up to a moment before the partition was dropped. The judge expected the
    partition's rows, although the definition that came back did not have the partition any more."""
    scenario = Scenario(
        seed=300023,
        work_s=40.908016188920364,
        operations=(
            Operation(14.37679313370928, 3, "upsert", "alpha", 242),
            Operation(37.94573558756074, 1, "renew_partition", "alpha", 126),
            Operation(39.56021417837551, 0, "renew_collection", "alpha", 57),
            Operation(40.908016188920364, 11, "undrop", "epsilon", 405),
        ),
        faults=(),
        power_cut=False,
    )
    assert run(scenario).broken == ""


def test_an_order_to_flush_waits_until_the_owner_knows_its_new_epoch() -> None:
    """The owner could not be reached when a field was added. The order reached it before the assignment,
    which made it forget the order: the segment stayed in the state Flushing."""
    scenario = Scenario(
        seed=1031149,
        work_s=3.112049459654609,
        operations=(
            Operation(0.617281413187394, 16, "insert", "eta", 42),
            Operation(1.0256444373967137, 15, "change_fields", "eta", 39),
            Operation(2.2366326910953176, 1, "insert", "alpha", 9),
        ),
        faults=(Fault(3.112049459654609, FaultKind.PARTITION, "datacoord|pipeline", 3.721923),),
        power_cut=False,
    )
    assert run(scenario).broken == ""


def test_a_release_whose_proxy_was_killed_may_arrive_after_the_faults() -> None:
    """Its client got no answer, and the run loaded the collection before the release arrived."""
    scenario = Scenario(
        seed=1038980,
        work_s=3.796780501791197,
        operations=(Operation(2.203388164469005, 1, "reload", "beta", 10),),
        faults=(
            Fault(2.4945002953981326, FaultKind.DELAY_CALL, "release", 0.628319),
            Fault(3.729920303090922, FaultKind.CRASH_CALLEE, "release", 0.007955),
            Fault(3.796780501791197, FaultKind.DELAY_CALL, "release", 0.641284),
        ),
        power_cut=False,
    )
    assert run(scenario).broken == ""
