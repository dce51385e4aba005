"""The RPCs of compaction, over a real channel."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_verbs import FakeVerbs
from wire_messages import Call

from elanus.core.clustering import Clustering
from elanus.core.compaction import CompactionPlan, CompactionState
from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.timestamps import Timestamp
from elanus.proxy.wire.stubs import common_pb2

P = CompactionState
COMPLETED = common_pb2.CompactionState.Value("Completed")


def plan(number: int, state: CompactionState, output: int = 0) -> CompactionPlan:
    inputs = (SegmentID(10 * number), SegmentID(10 * number + 1))
    return CompactionPlan(
        number,
        77,
        CollectionID(1),
        PartitionID(2),
        "v",
        inputs,
        ("a", "b"),
        SegmentID(output),
        Timestamp(1),
        Timestamp(0),
        state,
    )


def test_it_is_asked_for_by_name_or_by_id(call: Call, verbs: FakeVerbs) -> None:
    verbs.plans = [plan(1, P.PLANNED)]
    by_name = call("ManualCompaction", collection_name="books")
    assert (by_name.compactionID, by_name.compactionPlanCount) == (77, 1)
    assert call("ManualCompaction", collectionID=5).compactionID == 77
    assert verbs.compacted == [("default", "books", 0), ("default", "", 5)]


def test_the_target_size_is_in_megabytes_and_may_be_as_large_as_a_number_is(
    call: Call, verbs: FakeVerbs
) -> None:
    for size_mb in (0, 3, 2**63 // 2**20, 2**63 - 1):
        assert call("ManualCompaction", collection_name="books", target_size=size_mb).compactionID == 77
    assert verbs.targets == [None, 3 * 1024 * 1024, 2**62, 2**62]
    refused = call("ManualCompaction", collection_name="books", target_size=-1)
    assert "target_size [-1] is invalid" in refused.status.reason
    assert len(verbs.targets) == 4


def test_plans_are_counted_by_how_they_ended(call: Call, verbs: FakeVerbs) -> None:
    states = [P.COMPLETED, P.COMPLETED, P.TIMED_OUT, P.FAILED, P.CANCELLED]
    verbs.plans = [plan(n, state) for n, state in enumerate(states)]
    ended = call("GetCompactionState", compactionID=77)
    assert ended.state == COMPLETED
    counts = (ended.executingPlanNo, ended.completedPlanNo, ended.timeoutPlanNo, ended.failedPlanNo)
    assert counts == (0, 2, 1, 2)
    verbs.plans.append(plan(9, P.PLANNED))
    runs = call("GetCompactionState", compactionID=77)
    assert (runs.state, runs.executingPlanNo) == (common_pb2.Executing, 1)


def test_plans_name_their_segments(call: Call, verbs: FakeVerbs) -> None:
    verbs.plans = [plan(1, P.COMPLETED, 99), plan(2, P.COMPLETED), plan(3, P.PLANNED, 98)]
    answer = call("GetCompactionStateWithPlans", compactionID=77)
    assert answer.state == common_pb2.Executing
    found = [(list(info.sources), info.target) for info in answer.mergeInfos]
    assert found == [([10, 11], 99), ([20, 21], -1), ([30, 31], -1)], "no target before there is one"


def test_all_plans_of_a_collection_are_listed_by_its_name(call: Call, verbs: FakeVerbs) -> None:
    verbs.plans = [plan(1, P.COMPLETED, 99), replace(plan(2, P.FAILED), reason="no room", deltas=("d",))]
    done, failed = call("GetCompactionStateWithPlans", collection_name="books").mergeInfos
    assert (done.plan_id, done.trigger_id, done.collection_id, done.partition_id) == (1, 77, 1, 2)
    assert (done.channel, list(done.targets), done.failure_reason) == ("v", [99], "")
    assert (done.type, done.state) == (common_pb2.CompactionTypeMix, common_pb2.CompactionTaskStateCompleted)
    assert (failed.target, list(failed.targets), failed.failure_reason) == (-1, [], "no room")
    assert failed.type == common_pb2.CompactionTypeLevel0Delete
    assert failed.state == common_pb2.CompactionTaskStateFailed
    assert not call("GetCompactionStateWithPlans", collection_name="other").mergeInfos


def test_a_compaction_without_plans_is_complete(call: Call) -> None:
    assert call("GetCompactionState", compactionID=4711).state == common_pb2.CompactionState.Value(
        "Completed"
    )


@pytest.mark.parametrize("rpc", ["GetCompactionState", "GetCompactionStateWithPlans"])
@pytest.mark.parametrize("number", [0, -1])
def test_no_compaction_has_such_an_id(call: Call, rpc: str, number: int) -> None:
    assert "does not exist" in call(rpc, compactionID=number).status.reason


@pytest.mark.parametrize("kind", ["majorCompaction", "l0Compaction"])
def test_a_major_compaction_is_one_by_the_clustering_key(call: Call, verbs: FakeVerbs, kind: str) -> None:
    assert call("ManualCompaction", collection_name="books", **{kind: True}).status.code == 0
    assert len(verbs.compacted) == 1
    assert verbs.by_key == [kind == "majorCompaction"]


def test_a_plan_with_several_outputs_shows_all_of_them(call: Call, verbs: FakeVerbs) -> None:
    clustering = Clustering(FieldID(101), 2, 10, SegmentID(100), 4)
    runs = replace(plan(1, P.PLANNED), clustering=clustering)
    verbs.plans = [runs, replace(runs, state=P.COMPLETED, outputs=(SegmentID(100), SegmentID(101)))]
    infos = call("GetCompactionStateWithPlans", compactionID=77).mergeInfos
    assert [(list(i.sources), i.target) for i in infos] == [([10, 11], n) for n in (-1, 100, 101)]


@pytest.mark.parametrize(
    ("field", "remedy"),
    [
        ({"segment_ids": [1]}, "chosen by the server"),
        ({"timetravel": 5}, "retention_s"),
    ],
    ids=str,
)
def test_what_cannot_be_chosen_is_refused(call: Call, field: dict[str, object], remedy: str) -> None:
    answer = call("ManualCompaction", collection_name="books", **field)
    assert "not supported" in answer.status.reason
    assert remedy in answer.status.reason
