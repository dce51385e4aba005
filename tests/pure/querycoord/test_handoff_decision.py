"""When a compaction's output takes its inputs' place."""

from __future__ import annotations

from dataclasses import replace

from fakes import DEFAULT, manifest

from elanus.api.querynode import SegmentServing
from elanus.core.heirs import Heirs
from elanus.core.ids import CollectionID, IndexID, SegmentID
from elanus.core.segments import SegmentManifest
from elanus.core.timestamps import Timestamp, compose
from elanus.querycoord.handoff import Handoff, decide, hold_back
from elanus.querycoord.served import Served

V = manifest(1).vchannel
LATER = compose(100)
NOTHING = Handoff(frozenset(), {}, {}, frozenset())


def output(number: int, *parents: int, folded: int = 3) -> SegmentManifest:
    """Its newest row is of 5 ms."""
    made_from = tuple(map(SegmentID, parents))
    return replace(manifest(number), parents=made_from, deletes_from=compose(folded))


def sealed(number: int, *, indexed: bool = True) -> SegmentServing:
    index_ids = (IndexID(90),) if indexed else ()
    return SegmentServing(
        SegmentID(number), CollectionID(400), DEFAULT, V, 10, True, 0, IndexID(90), index_ids
    )


def served(
    *segments: SegmentServing,
    growing: tuple[int, ...] = (),
    tick: Timestamp = LATER,
    named: tuple[int, ...] = (),
) -> Served:
    ids = {s.segment_id: s for s in segments}
    return Served(
        {*ids, *map(SegmentID, named)}, ids, {SegmentID(s): V for s in growing}, {V: tick} if tick else {}
    )


def decided(
    outputs: list[SegmentManifest],
    of: Served,
    successors: dict[int, int],
    unbuilt: tuple[int, ...] = (),
    service_ts: Timestamp = LATER,
    split: dict[int, tuple[int, ...]] | None = None,
) -> Handoff:
    wanted = {m.segment_id: m for m in outputs}
    return decide(wanted, of, heirs(successors, split or {}), tuple(map(SegmentID, unbuilt)), service_ts)


def heirs(successors: dict[int, int], split: dict[int, tuple[int, ...]]) -> Heirs:
    return Heirs(
        {SegmentID(s): SegmentID(o) for s, o in successors.items()},
        {SegmentID(s): tuple(map(SegmentID, several)) for s, several in split.items()},
    )


def test_an_output_takes_its_inputs_place_when_it_is_built() -> None:
    of = served(sealed(1), sealed(2))
    assert decided([output(9, 1, 2)], of, {1: 9, 2: 9}) == NOTHING


def test_inputs_go_on_serving_until_the_outputs_index_is_built() -> None:
    found = decided([output(9, 1, 2)], served(sealed(1), sealed(2)), {1: 9, 2: 9}, unbuilt=(9,))
    assert (found.held, found.kept) == ({9}, {1: V, 2: V})
    assert found.late == frozenset(), "indexcoord reports when it is built"


def test_without_an_index_on_the_inputs_there_is_nothing_to_wait_for() -> None:
    of = served(sealed(1, indexed=False))
    assert decided([output(9, 1)], of, {1: 9}, unbuilt=(9,)) == NOTHING


def test_after_a_restart_the_output_is_loaded_as_it_is() -> None:
    assert decided([output(9, 1)], served(tick=Timestamp(0)), {}, unbuilt=(9,)) == NOTHING


def test_when_an_input_is_lost_the_output_does_not_wait() -> None:
    of = served(sealed(1), named=(2,))
    assert decided([output(9, 1, 2)], of, {1: 9, 2: 9}, unbuilt=(9,)).held == frozenset()
    behind = served(sealed(1), named=(2,), tick=compose(4))
    assert decided([output(9, 1, 2)], behind, {1: 9, 2: 9}).held == frozenset()


def test_growing_inputs_are_lost_with_the_node_that_led_their_vchannel() -> None:
    """Sealed ones are on other nodes, and alone they do not have all rows of the output."""
    outputs, successors = [output(9, 1, 2)], {1: 9, 2: 9}
    before = served(sealed(1), growing=(2,))
    assert decided(outputs, before, successors, unbuilt=(9,)).held == {9}
    after = served(sealed(1), tick=Timestamp(0))
    assert decided(outputs, after, successors, unbuilt=(9,)).held == frozenset()
    all_sealed = served(sealed(1), sealed(2), tick=Timestamp(0))
    assert decided(outputs, all_sealed, successors, unbuilt=(9,)).held == {9}


def test_an_output_is_late_until_its_rows_have_been_read_in_the_log() -> None:
    for tick, is_late in ((compose(4), True), (compose(5), False)):
        found = decided([output(9, 1)], served(sealed(1), tick=tick), {1: 9})
        assert (bool(found.held), bool(found.late), bool(found.kept)) == (is_late, is_late, is_late)


def test_an_output_is_late_until_reads_are_past_what_it_has_folded_in() -> None:
    for service_ts, is_late in ((compose(2), True), (compose(3), False)):
        assert bool(decided([output(9, 1)], served(sealed(1)), {1: 9}, service_ts=service_ts).late) is is_late


def test_growing_copies_of_whatever_an_output_has_retire_with_it() -> None:
    """Segment 1 was flushed, compacted into 5 and that into 9 before the node let go of its growing copy."""
    of = served(growing=(1, 7))
    assert decided([output(9, 5)], of, {1: 9}).retired == {1: V}, "7 still grows"
    behind = served(growing=(1, 7), tick=compose(4))
    assert decided([output(9, 5)], behind, {1: 9}).retired == {}


def test_growing_copies_of_a_dropped_partition_go_with_its_drop_message() -> None:
    assert decided([], served(growing=(1,)), {1: 0}).retired == {}


def test_an_output_that_is_served_already_is_not_taken_back() -> None:
    of = served(sealed(9), sealed(1), tick=compose(4))
    assert decided([output(9, 1)], of, {1: 9}, unbuilt=(9,)) == NOTHING


CLUSTERS = {1: (7, 8, 9), 2: (7, 8, 9)}
ONE_OF_THEM = {1: 7, 2: 7}
"""Segments 1 and 2 were rewritten by a clustering key into 7, 8 and 9."""


def clusters() -> list[SegmentManifest]:
    return [output(number, 1, 2) for number in (7, 8, 9)]


def test_clusters_take_their_inputs_place_together() -> None:
    of = served(sealed(1), sealed(2))
    assert decided(clusters(), of, ONE_OF_THEM, split=CLUSTERS) == NOTHING
    for unbuilt in (7, 8, 9):
        found = decided(clusters(), of, ONE_OF_THEM, unbuilt=(unbuilt,), split=CLUSTERS)
        assert (found.held, found.kept) == ({7, 8, 9}, {1: V, 2: V})


def test_clusters_wait_for_the_last_of_their_rows_to_be_read() -> None:
    """An input may be unknown here, because the node has yet to read its rows in the log."""
    (file,) = manifest(1).insert_logs
    old = replace(output(7, 1, 2), insert_logs=(replace(file, ts_max=compose(2)),))
    of = served(tick=compose(4))
    assert decided([old, *clusters()[1:]], of, ONE_OF_THEM, split=CLUSTERS).held == {7, 8, 9}


def test_clusters_that_were_compacted_since_bring_the_others_with_them() -> None:
    """Cluster 9 became 12 with segment 3, which is served next to the inputs."""
    outputs = [output(7, 1, 2), output(8, 1, 2), output(12, 9, 3)]
    split = {1: (7, 8, 12), 2: (7, 8, 12)}
    of = served(sealed(1), sealed(2), sealed(3))
    found = decided(outputs, of, {**ONE_OF_THEM, 3: 12}, unbuilt=(12,), split=split)
    assert (found.held, found.kept) == ({7, 8, 12}, {1: V, 2: V, 3: V})
    lost = served(sealed(1), sealed(2), named=(3,))
    assert decided(outputs, lost, {**ONE_OF_THEM, 3: 12}, unbuilt=(12,), split=split).held == frozenset()


def test_clusters_that_are_served_stay_whatever_becomes_of_one_of_them() -> None:
    outputs = [output(7, 1, 2), output(8, 1, 2), output(12, 9)]
    of = served(sealed(7), sealed(8), sealed(9))
    split = {1: (7, 8, 12), 2: (7, 8, 12)}
    found = decided(outputs, of, {**ONE_OF_THEM, 9: 12}, unbuilt=(12,), split=split)
    assert (found.held, found.kept) == ({12}, {9: V})


def test_a_cluster_that_cannot_be_read_keeps_all_of_them_back() -> None:
    of = served(sealed(1), sealed(2), growing=(4,))
    split = {**CLUSTERS, 4: (7, 8, 9)}
    handoff = decided(clusters(), of, {**ONE_OF_THEM, 4: 7}, split=split)
    assert handoff.retired == {4: V}
    known = heirs({1: 7, 2: 7, 4: 7}, split)
    found = hold_back(handoff, {SegmentID(9)}, of, known)
    assert (found.held, found.kept, found.retired) == ({7, 8, 9}, {1: V, 2: V}, {})
    restarted = served(tick=Timestamp(0))
    found = hold_back(NOTHING, {SegmentID(9)}, restarted, known)
    assert found.held == {9}, "without the inputs, the others are better than nothing"
