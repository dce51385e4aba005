"""An index over segments whose index files exist already: they are its builds, and nothing is built."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from fakes import CID, settle
from giving_up import cut_off
from index_bench import HNSW, Bench, segment

from elanus.api.indexcoord import BuildState
from elanus.core.ids import BuildID, FieldID, IndexID, SegmentID
from elanus.core.segments import IndexFile


def lent(number: int) -> IndexFile:
    """The file of another collection's index, over rows that this collection's segment has."""
    path = f"index_files/9{number}/1/1/{number}/a1-index"
    return IndexFile(
        BuildID(9000 + number),
        IndexID(77),
        FieldID(102),
        SegmentID(number),
        "HNSW",
        "L2",
        HNSW,
        path,
        100,
        5,
        True,
    )


async def with_segments(directory: Path, *numbers: int) -> Bench:
    bench = Bench(directory)
    await bench.start()
    await bench.flushed(*map(segment, numbers))
    return bench


async def test_files_that_exist_are_finished_builds_and_the_rest_is_built(tmp_path: Path) -> None:
    bench = await with_segments(tmp_path, 1, 2, 3)
    node = await bench.node()
    await bench.coord.create_index(CID, bench.field, "v0", HNSW, (lent(1), lent(2)))
    await settle()
    assert node.calls.of("build_index") == [(3, 1)]
    (index,) = await bench.coord.indexes(CID)
    builds = bench.builds()
    assert {build.state for build in builds.values()} == {BuildState.FINISHED}
    assert len({build.build_id for build in builds.values()}) == 3
    own = {f.segment_id: f for f in await bench.coord.index_files(CID)}
    assert own[SegmentID(1)] == replace(
        lent(1), build_id=builds[SegmentID(1)].build_id, index_id=index.index_id
    )
    await bench.restart()
    assert bench.builds() == builds, "it is in the metadata"
    await bench.coord.stop()


async def test_files_that_arrive_late_do_not_replace_builds(tmp_path: Path) -> None:
    """A creation that is repeated after a crash finds some of its builds made, or under way."""
    bench = await with_segments(tmp_path, 1)
    await bench.node()
    await bench.create()
    before = bench.builds()
    await bench.flushed(segment(1), segment(2))
    await bench.coord.create_index(CID, bench.field, "v0", HNSW, (lent(1),))
    assert bench.builds()[SegmentID(1)] == before[SegmentID(1)]
    await bench.coord.stop()


async def test_an_adopted_file_that_is_damaged_is_built_again(tmp_path: Path) -> None:
    bench = await with_segments(tmp_path, 1)
    node = await bench.node()
    await bench.coord.create_index(CID, bench.field, "v0", HNSW, (lent(1),))
    assert lent(1).path in (await bench.coord.index_references()).files
    await bench.coord.rebuild(CID, lent(1).path, "damaged")
    await settle()
    assert node.calls.of("build_index") == [(1, 2)]
    assert lent(1).path not in (await bench.coord.index_references()).files
    await bench.coord.stop()


async def test_the_index_and_its_builds_are_recorded_although_the_caller_gave_up(tmp_path: Path) -> None:
    bench = await with_segments(tmp_path, 1, 2)
    node = await bench.node()
    await cut_off(bench.meta, bench.coord.create_index(CID, bench.field, "v0", HNSW, (lent(1), lent(2))))
    await settle()
    assert set(bench.builds()) == {1, 2}
    assert node.calls.of("build_index") == []
    await bench.coord.stop()


async def test_a_round_that_saw_the_index_before_its_builds_orders_none(tmp_path: Path) -> None:
    bench = await with_segments(tmp_path, 1)
    node = await bench.node()
    at_builds, go_on = asyncio.Event(), asyncio.Event()
    put_build = bench.state.put_build

    async def slow(*builds: object) -> None:
        at_builds.set()
        await go_on.wait()
        await put_build(*builds)  # type: ignore[arg-type]

    bench.state.put_build = slow  # type: ignore[method-assign, assignment]
    creation = asyncio.ensure_future(bench.coord.create_index(CID, bench.field, "v0", HNSW, (lent(1),)))
    await at_builds.wait()
    bench.coord._builder.examine_soon((CID,))
    await settle()
    go_on.set()
    await creation
    await settle()
    assert node.calls.of("build_index") == []
    assert {b.file.path for b in bench.state.builds() if b.file is not None} == {lent(1).path}
    assert len(await bench.meta.list("indexcoord/build/")) == 1
    await bench.coord.stop()
