"""Each index of a flushed segment is built once, by any node that is there; nothing is left of a drop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fakes import CID, collection, schema, settle
from giving_up import cut_off
from index_bench import HNSW, ROWS_MIN, Bench, info, segment

from elanus.api.indexcoord import BuildState
from elanus.core.errors import (
    Cancelled,
    DeadlineExceeded,
    DiskFull,
    ElanusError,
    IndexConflict,
    Internal,
    InvalidParameter,
    LeaseLost,
    Unavailable,
)
from elanus.core.ids import CollectionID
from elanus.core.segments import SegmentState

B = BuildState


async def with_an_index(directory: Path, *, builds_max: int = 1) -> Bench:
    bench = Bench(directory, builds_max=builds_max)
    await bench.start()
    await bench.create()
    return bench


# definitions


async def test_an_index_is_defined_once(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    await bench.coord.create_index(CID, bench.field, "v0", HNSW)
    (index,) = await bench.coord.indexes(CID)
    assert (index.name, index.field_id, dict(index.params)) == ("v0", 102, HNSW)
    for name, params in (("v0", HNSW | {"M": "16"}), ("other", HNSW)):
        with pytest.raises(IndexConflict):
            await bench.coord.create_index(CID, bench.field, name, params)
    assert bench.proxy.calls.of("invalidate_collection") == [CID]
    await bench.coord.stop()


async def test_of_two_definitions_at_once_one_is_made(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.start()
    alloc_ids = bench.root.alloc_ids

    async def slow_ids(count: int) -> int:
        await asyncio.sleep(0.1)
        return await alloc_ids(count)

    bench.root.alloc_ids = slow_ids  # type: ignore[method-assign]
    results = await asyncio.gather(
        coord.create_index(CID, bench.field, "a", HNSW),
        coord.create_index(CID, bench.field, "b", HNSW),
        coord.create_index(CID, bench.field, "a", HNSW),
        return_exceptions=True,
    )
    assert [type(r) for r in results] == [type(None), IndexConflict, type(None)]
    assert len(await coord.indexes(CID)) == 1
    await coord.stop()


async def test_a_definition_whose_caller_gave_up_is_announced_to_all(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.start()
    calls = bench.proxy.calls.of
    seen = await coord.wait_change(0, 0.0)
    await cut_off(bench.meta, coord.create_index(CID, bench.field, "v0", HNSW))
    (index,) = await coord.indexes(CID)
    assert calls("invalidate_collection") == [CID]
    assert await coord.changed_since(seen) == (CID,)
    await cut_off(bench.meta, coord.drop_index(CID, index.index_id))
    assert calls("invalidate_collection") == [CID, CID]
    await bench.create()
    await cut_off(bench.meta, coord.drop_collection(CID))
    assert calls("invalidate_collection") == [CID] * 4
    await coord.stop()


async def test_the_second_try_succeeds_when_the_proxies_were_notified_of_the_first(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.start()
    bench.proxy.calls.failing["invalidate_collection"] = Unavailable("the call was lost")
    await cut_off(bench.meta, coord.create_index(CID, bench.field, "v0", HNSW))
    (index,) = await coord.indexes(CID)
    again = asyncio.ensure_future(coord.create_index(CID, bench.field, "v0", HNSW))
    await asyncio.sleep(3)
    assert not again.done()
    bench.proxy.calls.failing.clear()
    await again
    bench.proxy.calls.failing["invalidate_collection"] = Unavailable("the call was lost")
    await cut_off(bench.meta, coord.drop_index(CID, index.index_id))
    with pytest.raises(Unavailable, match="an earlier change"):
        await coord.drop_index(CID, index.index_id)
    await coord.stop()


async def test_what_others_rely_on_is_not_answered_by_one_that_was_replaced(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    bench.lease.calls.failing["confirm"] = LeaseLost("another one is active")
    with pytest.raises(LeaseLost):
        await bench.coord.indexes(CID)
    with pytest.raises(LeaseLost):
        await bench.coord.index_references()
    await bench.coord.stop()


async def test_an_index_that_makes_no_sense_is_not_defined(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.start()
    with pytest.raises(InvalidParameter):
        await coord.create_index(CID, bench.field, "v0", HNSW | {"M": "100000"})
    assert await coord.indexes(CID) == ()
    await coord.stop()


async def test_definitions_and_builds_outlive_a_restart(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    await bench.node()
    await bench.flushed(segment(1))
    before = (await bench.coord.indexes(CID), await bench.coord.index_files(CID))
    assert len(before[1]) == 1
    await bench.restart()
    assert (await bench.coord.indexes(CID), await bench.coord.index_files(CID)) == before
    node = await bench.node()
    assert len(node.calls.of("build_index")) == 1, "what is built is not built again"
    await bench.coord.stop()


# builds


async def test_each_flushed_segment_is_built_once_and_said_so(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    node = await bench.node()
    changes = await bench.coord.wait_change(0, 0)
    await bench.flushed(segment(1))
    await bench.flushed(segment(1), segment(2))
    await bench.flushed(segment(1), segment(2))
    assert node.calls.of("build_index") == [(1, 1), (2, 1)]
    assert {f.segment_id for f in await bench.coord.index_files(CID)} == {1, 2}
    assert await bench.coord.wait_change(changes, 0) != changes
    await bench.coord.stop()


async def test_an_index_made_later_is_built_over_what_is_there(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.start()
    node = await bench.node()
    await bench.flushed(segment(1))
    assert node.calls.asked == []
    await bench.create()
    assert node.calls.of("build_index") == [(1, 1)]
    await bench.coord.stop()


async def test_every_vector_has_its_build(tmp_path: Path) -> None:
    two = collection(schema(vectors=2))
    bench = Bench(tmp_path, two)
    await bench.start()
    await bench.node()
    await bench.flushed(segment(1))
    for field in two.schema.vector_fields:
        await bench.create(field.name, field)
    assert sorted(f.field_id for f in await bench.coord.index_files(CID)) == [102, 103]
    await bench.coord.stop()


async def test_small_segments_need_no_index_and_count_as_finished(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    node = await bench.node()
    await bench.flushed(segment(1, ROWS_MIN - 1), segment(2, ROWS_MIN))
    assert node.calls.of("build_index") == [(2, 1)]
    (status,) = await bench.coord.describe(CID)
    assert (status.state, status.indexed_rows, status.total_rows) == (B.FINISHED, 199, 199)
    await bench.coord.stop()


async def test_no_more_builds_at_once_than_allowed(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path, builds_max=2)
    node = await bench.node()
    node.go_on.clear()
    await bench.flushed(*(segment(n) for n in range(1, 6)))
    assert node.at_once == 2
    node.go_on.set()
    await settle(200)
    assert (node.at_once_max, len(await bench.files())) == (2, 5)
    await bench.coord.stop()


async def test_builds_wait_for_an_index_node(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    await bench.flushed(segment(1))
    assert bench.builds()[segment(1).segment_id].state is B.UNISSUED
    await asyncio.sleep(60)
    await bench.node()
    assert len(await bench.files()) == 1
    await bench.coord.stop()


# progress


async def test_progress_counts_rows_of_flushed_segments(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    (status,) = await bench.coord.describe(CID)
    assert (status.state, status.total_rows) == (B.FINISHED, 0), "nothing to build"
    node = await bench.node()
    await bench.flushed(segment(1, 100))
    node.go_on.clear()
    await bench.flushed(segment(1, 100), segment(2, 300))
    growing = info(segment(3, 1000), SegmentState.GROWING)
    bench.data.infos[growing.segment_id] = growing
    (status,) = await bench.coord.describe(CID)
    rows = (status.total_rows, status.indexed_rows, status.pending_rows)
    assert (status.state, rows) == (B.IN_PROGRESS, (400, 100, 300))
    node.go_on.set()
    await settle()
    assert (await bench.coord.describe(CID))[0].state is B.FINISHED
    await bench.coord.stop()


# losses


async def test_a_build_that_somebody_cancelled_is_failed_and_not_tried_again(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    node = await bench.node()
    node.calls.failing["build_index"] = Cancelled("the build was cancelled")
    await bench.flushed(segment(1))
    await asyncio.sleep(600)
    assert node.calls.of("build_index") == [(1, 1)]
    (status,) = await bench.coord.describe(CID)
    assert (status.state, status.fail_reason) == (B.FAILED, "the build was cancelled")
    await bench.coord.stop()


@pytest.mark.parametrize("error", [Unavailable("gone"), DeadlineExceeded("silent")])
async def test_a_build_of_a_lost_node_is_assigned_again_under_a_higher_version(
    tmp_path: Path, error: ElanusError
) -> None:
    bench = await with_an_index(tmp_path)
    lost = await bench.node(1)
    lost.calls.failing["build_index"] = error
    await bench.flushed(segment(1))
    await asyncio.sleep(10)
    assert len(lost.calls.of("build_index")) == 1, "a node that is gone is not asked again"
    node = await bench.node(2)
    assert node.calls.of("build_index") == [(1, 2)]
    (path,) = await bench.files()
    assert path.endswith("/2")
    await bench.coord.stop()


async def test_a_node_that_says_it_is_back_is_one_again(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    node = await bench.node(1)
    node.calls.failing["build_index"] = Unavailable("gone")
    await bench.flushed(segment(1))
    node.calls.failing.clear()
    await bench.node(1)
    await bench.node(1)
    assert node.calls.of("build_index") == [(1, 1), (1, 2)]
    await bench.coord.stop()


async def test_a_build_that_ran_when_the_coordinator_went_away_is_built_again(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    node = await bench.node()
    node.go_on.clear()
    await bench.flushed(segment(1))
    await bench.restart()
    node.go_on.set()
    await bench.node()
    assert node.calls.of("build_index") == [(1, 1), (1, 2)]
    assert [b.state for b in bench.state.builds()] == [B.FINISHED]
    await bench.coord.stop()


@pytest.mark.parametrize("error", [Internal("the JVM is gone"), DiskFull("no room")])
async def test_a_build_that_fails_is_tried_again_before_it_counts(tmp_path: Path, error: ElanusError) -> None:
    bench = await with_an_index(tmp_path)
    node = await bench.node()
    node.calls.failing["build_index"] = error
    await bench.flushed(segment(1))
    node.calls.failing.clear()
    assert (await bench.coord.describe(CID))[0].state is B.IN_PROGRESS
    await asyncio.sleep(5)
    assert (await bench.coord.describe(CID))[0].state is B.FINISHED
    await bench.coord.stop()


async def test_a_build_that_always_fails_has_failed_and_says_why(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    node = await bench.node()
    node.calls.failing["build_index"] = Internal("a vector is missing")
    await bench.flushed(segment(1, 300), segment(2, 100))
    await asyncio.sleep(60)
    (status,) = await bench.coord.describe(CID)
    assert (status.state, status.indexed_rows) == (B.FAILED, 0)
    assert "a vector is missing" in status.fail_reason
    assert len(node.calls.of("build_index")) == 6
    await asyncio.sleep(600)
    assert len(node.calls.of("build_index")) == 6, "and is left alone"
    await bench.coord.stop()


async def test_a_build_whose_collection_is_dropped_is_not_tried_again(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    node = await bench.node()
    node.calls.failing["build_index"] = Internal("its files are gone")
    await bench.flushed(segment(1))
    del bench.root.collections[CID]
    await asyncio.sleep(60)
    assert len(node.calls.of("build_index")) == 1
    (build,) = bench.state.builds()
    assert (build.state, build.version) == (B.FAILED, 2)
    assert "collection not found" in build.fail_reason
    await bench.coord.stop()


async def test_while_one_build_waits_to_be_tried_again_others_go_on(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    node = await bench.node()
    node.calls.failing["build_index"] = Internal("once")
    await bench.flushed(segment(1))
    node.calls.failing.clear()
    await bench.flushed(segment(1), segment(2))
    assert [b.state for b in bench.state.builds()] == [B.IN_PROGRESS, B.FINISHED]
    await bench.coord.stop()


# what was dropped


async def test_dropping_an_index_removes_its_builds_and_leaves_the_files_to_garbage_collection(
    tmp_path: Path,
) -> None:
    bench = await with_an_index(tmp_path)
    await bench.node()
    await bench.flushed(segment(1), segment(2))
    (index,) = await bench.coord.indexes(CID)
    assert len(bench.stored()) == 2
    await bench.coord.drop_index(CID, index.index_id)
    await bench.coord.drop_index(CID, index.index_id)
    assert await bench.files() == set()
    await settle()
    assert bench.builds() == {}
    assert len(bench.stored()) == 2, "a snapshot may name them"
    assert (await bench.coord.index_references()).files == ()
    assert await bench.meta.list("indexcoord/") == []
    await bench.create(M="16")
    assert len(await bench.files()) == 2
    await bench.coord.stop()


async def test_dropping_a_collection_drops_its_indexes_alone(tmp_path: Path) -> None:
    other = collection(schema("d"), CollectionID(500))
    bench = Bench(tmp_path, collection(), other)
    coord = await bench.start()
    await bench.create()
    await coord.create_index(other.collection_id, bench.field, "v0", HNSW)
    await coord.drop_collection(CID)
    assert await coord.indexes(CID) == ()
    assert len(await coord.indexes(other.collection_id)) == 1
    await coord.stop()


async def test_a_build_that_runs_when_its_index_is_dropped_is_given_up(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    node = await bench.node()
    node.go_on.clear()
    await bench.flushed(segment(1))
    (index,) = await bench.coord.indexes(CID)
    await bench.coord.drop_index(CID, index.index_id)
    await settle()
    assert (node.at_once, bench.builds()) == (0, {})
    await bench.coord.stop()


async def test_what_a_drop_left_behind_at_a_crash_is_removed_after_it(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    await bench.node()
    await bench.flushed(segment(1))
    (index,) = await bench.coord.indexes(CID)
    await bench.state.remove_index(index)  # and no further
    await bench.restart()
    await settle()
    assert bench.builds() == {}
    await bench.coord.stop()


# following


async def test_a_datacoord_that_is_away_is_followed_when_it_is_back(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    await bench.node()
    for method in ("wait_change", "recovery_info"):
        bench.data.calls.failing[method] = Unavailable("restarting")
    await bench.flushed(segment(1))
    await asyncio.sleep(30)
    bench.data.calls.failing.clear()
    await asyncio.sleep(3)
    assert len(await bench.files()) == 1
    await bench.coord.stop()


async def test_a_collection_that_datacoord_does_not_know_stops_nobody(tmp_path: Path) -> None:
    other = collection(schema("d"), CollectionID(300))
    bench = Bench(tmp_path, collection(), other)
    coord = await bench.start()
    await coord.create_index(other.collection_id, bench.field, "v0", HNSW)
    del bench.data.recoveries[other.collection_id]
    await bench.create()
    await bench.node()
    await bench.flushed(segment(1))
    assert len(await bench.files()) == 1
    await coord.stop()


# what is in use


async def test_builds_of_dropped_segments_go_and_their_files_are_no_longer_in_use(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    await bench.node()
    await bench.flushed(segment(1), segment(2))
    assert len(bench.stored()) == 2
    await bench.flushed(segment(2))
    await settle()
    assert set(bench.builds()) == {2}
    assert set((await bench.coord.index_references()).files) == await bench.files()
    assert (len(await bench.files()), len(bench.stored())) == (1, 2)
    await bench.coord.stop()


async def test_a_build_that_runs_for_a_dropped_segment_is_given_up(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    node = await bench.node()
    node.go_on.clear()
    await bench.flushed(segment(1))
    await bench.flushed()
    await settle()
    assert (node.at_once, bench.builds()) == (0, {})
    await bench.coord.stop()


async def test_references_name_files_in_use_and_builds_that_may_bring_one(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    node = await bench.node()
    await bench.flushed(segment(1))
    node.go_on.clear()
    await bench.flushed(segment(1), segment(2), segment(3, rows=1))
    references = await bench.coord.index_references()
    running = bench.builds()[segment(2).segment_id]
    assert set(references.files) == bench.stored()
    assert references.unfinished == {running.build_id: 1}
    assert references.builds_below > max(b.build_id for b in bench.builds().values())
    node.go_on.set()
    await settle()
    references = await bench.coord.index_references()
    assert (len(references.files), references.unfinished) == (2, {})
    await bench.coord.stop()


async def test_an_index_whose_file_is_damaged_is_built_again(tmp_path: Path) -> None:
    bench = await with_an_index(tmp_path)
    node = await bench.node()
    await bench.flushed(segment(1))
    (file,) = await bench.coord.index_files(CID)
    seen = await bench.coord.wait_change(0, 1)
    await bench.coord.rebuild(CollectionID(CID + 1), file.path, "of another collection")
    await bench.coord.rebuild(CID, "index_files/none", "no such file")
    assert await bench.coord.index_files(CID) == (file,)
    node.go_on.clear()
    await bench.coord.rebuild(CID, file.path, "damaged")
    assert await bench.coord.index_files(CID) == (), "nobody loads the damaged file any more"
    assert await bench.coord.wait_change(seen, 1) > seen
    references = await bench.coord.index_references()
    assert file.path not in references.files
    node.go_on.set()
    await settle()
    (again,) = await bench.coord.index_files(CID)
    assert (again.build_id, again.path != file.path) == (file.build_id, True)
    await bench.restart()
    assert await bench.coord.index_files(CID) == (again,)
    await bench.coord.stop()
