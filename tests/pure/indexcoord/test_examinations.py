"""Collections are examined when they have changed, and not because others have, or time has passed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import CID, collection, recovery, settle
from index_bench import HNSW, ROWS_MIN, Bench, info, segment

from elanus.api.indexcoord import BuildState
from elanus.api.recovery import DamagedManifest
from elanus.core.errors import Unavailable
from elanus.core.ids import BuildID, CollectionID, IndexID, SegmentID
from elanus.core.segments import SegmentInfo, SegmentManifest
from elanus.indexcoord.state import Build, IndexState
from elanus.meta.port import TXN_OPERATIONS_MAX, Compare, Delete, Put

COLLECTIONS = [CollectionID(CID + n) for n in range(20)]


async def with_indexes(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path, *(collection(collection_id=collection_id) for collection_id in COLLECTIONS))
    coord = await bench.start()
    for collection_id in COLLECTIONS:
        await coord.create_index(collection_id, bench.field, f"of {collection_id}", HNSW)
    await settle()
    return bench


def flush(bench: Bench, collection_id: CollectionID, *segments: SegmentManifest) -> None:
    known = next(c for c in bench.collections if c.collection_id == collection_id)
    bench.data.recoveries[collection_id] = recovery(known, *segments)
    bench.data.infos |= {s.segment_id: replace(info(s), collection_id=collection_id) for s in segments}
    bench.data.changes.happened(collection_id)


def examined(bench: Bench) -> list[CollectionID]:
    found = bench.data.calls.of("segments")
    bench.data.calls.asked.clear()
    return found


async def test_at_first_all_are_examined_and_then_those_that_change(tmp_path: Path) -> None:
    bench = await with_indexes(tmp_path)
    await bench.restart()
    await settle()
    examined(bench)
    await bench.restart()
    await settle()
    assert sorted(examined(bench)) == COLLECTIONS
    bench.data.changes.happened(COLLECTIONS[3])
    bench.data.changes.happened(COLLECTIONS[5])
    bench.data.changes.happened(COLLECTIONS[3])
    await settle()
    assert set(examined(bench)) == {COLLECTIONS[3], COLLECTIONS[5]}
    await asyncio.sleep(600)
    assert examined(bench) == [], "nothing has changed"
    bench.data.changes.happened()
    await settle()
    assert sorted(examined(bench)) == COLLECTIONS, "it may concern any"
    await bench.coord.stop()


async def test_a_build_that_has_ended_has_nothing_examined(tmp_path: Path) -> None:
    bench = await with_indexes(tmp_path)
    await bench.node()
    examined(bench)
    flush(bench, CID, segment(1))
    await asyncio.sleep(10)
    assert examined(bench) == [CID], "for the new segment"
    assert bench.builds()[SegmentID(1)].state is BuildState.FINISHED
    await bench.coord.stop()


async def test_after_a_restart_nothing_is_read_of_collections_whose_builds_have_ended(tmp_path: Path) -> None:
    bench = await with_indexes(tmp_path)
    await bench.node()
    for collection_id in COLLECTIONS:
        flush(bench, collection_id, segment(int(collection_id)))
    await asyncio.sleep(60)
    assert {b.state for b in bench.builds().values()} == {BuildState.FINISHED}
    bench.data.calls.asked.clear()
    await bench.restart()
    await settle()
    assert bench.data.calls.of("recovery_info") == [], "manifests are read for it"
    assert sorted(examined(bench)) == COLLECTIONS
    flush(bench, CID, segment(int(CID)), segment(1))
    await settle()
    assert bench.data.calls.of("recovery_info") == [CID]
    await bench.coord.stop()


async def test_a_node_that_comes_takes_up_the_collections_with_builds_to_do(tmp_path: Path) -> None:
    bench = await with_indexes(tmp_path)
    for collection_id in COLLECTIONS[:2]:
        flush(bench, collection_id, segment(int(collection_id)))
    await settle()
    examined(bench)
    await bench.node()
    await asyncio.sleep(10)
    assert set(examined(bench)) == set(COLLECTIONS[:2])
    assert {b.state for b in bench.builds().values()} == {BuildState.FINISHED}
    await bench.coord.stop()


async def test_a_collection_that_cannot_be_examined_is_tried_again_and_keeps_no_other_waiting(
    tmp_path: Path,
) -> None:
    bench = await with_indexes(tmp_path)
    working = bench.data.segments
    tried: list[CollectionID] = []

    async def failing(collection_id: CollectionID) -> tuple[SegmentInfo, ...]:
        tried.append(collection_id)
        if collection_id == COLLECTIONS[0] and len(tried) < 5:
            raise Unavailable("not now")
        return await working(collection_id)

    bench.data.segments = failing  # type: ignore[method-assign]
    for collection_id in COLLECTIONS[:3]:
        bench.data.changes.happened(collection_id)
    await asyncio.sleep(30)
    assert tried[-1] == COLLECTIONS[0]
    assert sorted(set(tried)) == COLLECTIONS[:3]
    assert tried.count(COLLECTIONS[1]) == tried.count(COLLECTIONS[2]) == 1
    await bench.coord.stop()


async def test_builds_are_found_by_collection_and_by_what_became_of_their_index(tmp_path: Path) -> None:
    bench = await with_indexes(tmp_path)
    state, (index,) = bench.state, bench.state.indexes(CID)
    builds = [
        Build(BuildID(n), index.index_id, CID, SegmentID(n), ROWS_MIN, 0, BuildState.UNISSUED) for n in (1, 2)
    ]
    other = Build(BuildID(9), IndexID(7), COLLECTIONS[1], SegmentID(9), ROWS_MIN, 0, BuildState.FINISHED)
    await bench.coord.stop()
    for build in (*builds, other):
        await state.put_build(build)
    assert state.leftovers() == (other,), "its index was never here"
    assert state.builds_of_dropped(CID, {SegmentID(1)}) == (builds[1],)
    assert list(state.unfinished_collections()) == [CID]
    await state.remove_index(index)
    assert state.indexes(CID) == ()
    assert set(state.leftovers()) == {*builds, other}
    again = IndexState(bench.meta)
    await again.start()
    assert set(again.leftovers()) == {*builds, other}
    for build in (*builds, other):
        await again.remove_build(build)
    assert again.leftovers() == again.builds() == ()
    assert list(again.unfinished_collections()) == []


async def test_the_index_of_a_segment_whose_manifest_is_damaged_stays(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.start()
    await bench.create()
    await bench.node()
    await bench.flushed(segment(1), segment(2))
    stored = bench.stored()
    bench.data.set_recovery(
        replace(recovery(collection(), segment(2)), damaged=(DamagedManifest(segment(1), "damaged"),))
    )
    await settle()
    assert (set(bench.builds()), bench.stored()) == ({1, 2}, stored)
    await bench.coord.stop()


async def test_builds_of_many_segments_are_recorded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await with_indexes(tmp_path)
    await bench.node()
    many = [segment(n, rows=1) for n in range(300)]
    transactions: list[int] = []
    commit = bench.meta.txn

    async def counted(operations: Sequence[Put | Delete], compares: Sequence[Compare] = ()) -> int:
        transactions.append(len(operations))
        return await commit(operations, compares)

    monkeypatch.setattr(bench.meta, "txn", counted)
    seen = await bench.coord.wait_change(0, 0.0)
    flush(bench, CID, *many, segment(900, rows=ROWS_MIN))
    await settle()
    await asyncio.sleep(1)
    builds = bench.state.builds()
    assert len({build.build_id for build in builds}) == 301
    assert {build.state for build in builds} == {BuildState.FINISHED}
    assert [build.segment_id for build in builds if build.file] == [900], "the others are too small"
    assert len(transactions) <= 301 // TXN_OPERATIONS_MAX + 1 + 2, transactions
    assert await bench.coord.wait_change(seen, 0.0) <= seen + 301 // TXN_OPERATIONS_MAX + 1 + 1
    restored = IndexState(bench.meta)
    await restored.start()
    assert sorted(restored.builds(), key=lambda b: b.build_id) == sorted(builds, key=lambda b: b.build_id)


async def test_others_are_notified_of_a_build_only_if_their_answers_change(tmp_path: Path) -> None:
    """A build that begins changes nothing for those who load segments. One that ends brings a file, or is
    that of a small output of a compaction, which waits to be served until its build has ended."""
    bench = await with_indexes(tmp_path)
    coord, first = bench.coord, (segment(1), segment(2, rows=1))
    seen = await coord.wait_change(0, 0.0)
    flush(bench, CID, *first)
    await settle()
    assert {b.state for b in bench.state.builds()} == {BuildState.UNISSUED, BuildState.FINISHED}
    assert await coord.wait_change(seen, 0.0) == seen
    output = replace(segment(3, rows=1), parents=(SegmentID(2),))
    assert await coord.unbuilt(CID, (output.segment_id,)) == (output.segment_id,)
    flush(bench, CID, *first, output)
    await settle()
    assert await coord.unbuilt(CID, (output.segment_id,)) == ()
    assert await coord.wait_change(seen, 0.0) == seen + 1
    await bench.node()
    await settle()
    assert [file.segment_id for file in await coord.index_files(CID)] == [1]
    assert await coord.wait_change(seen, 0.0) == seen + 2
    await coord.stop()
