"""The index files of a clone's source, and of a backup: kept, and named for the segments of the clone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fakes import CID, DEFAULT
from test_backups import HOUR_MS, copied, received, shown
from test_clones import Source, begun

from elanus.api.backups import copied_files, data_files, ids_for
from elanus.api.connector import SnapshotLease
from elanus.api.gc import IndexReferences
from elanus.api.snapshots import CloneSource
from elanus.core.catalog import Collection, Index
from elanus.core.ids import BuildID, FieldID, IndexID, SegmentID
from elanus.core.path_digests import PathDigests
from elanus.core.segments import IndexFile
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.storage.paths import index_file_path

INDEX = Index(IndexID(4), CID, FieldID(102), "v", {"index_type": "HNSW"}, Timestamp(1))
CONTENT = b"an index"


async def indexed(directory: Path) -> tuple[Source, SegmentID]:
    bench = await begun(directory)
    segment = await bench.written(delta=True)
    await bench.far()
    info = await bench.segment(segment)
    path = index_file_path(BuildID(3), 1, DEFAULT, segment, "a1-index")
    bench.store.put(path, CONTENT)
    file = IndexFile(
        BuildID(3),
        INDEX.index_id,
        INDEX.field_id,
        segment,
        "HNSW",
        "L2",
        {},
        path,
        info.rows,
        len(CONTENT),
        True,
    )
    bench.index.defined, bench.index.files = [INDEX], [file]
    bench.index.references = IndexReferences((path,), {}, 0)
    return bench, segment


async def cloned(bench: Source) -> Collection:
    """The clone before rootcoord has completed it: the pin is still there."""
    clone = bench.defined(await bench.coord.hold_source(CloneSource(CID)))
    await bench.coord.watch_channels(clone)
    return clone


async def backed_up(bench: Source) -> SnapshotLease:
    return await bench.coord.hold_backup(CID, NO_TIMESTAMP, HOUR_MS)


async def test_a_clone_has_the_index_files_of_its_source(tmp_path: Path) -> None:
    bench, source = await indexed(tmp_path)
    clone = await cloned(bench)
    (own,) = [s for s in bench.segments() if s != source]
    (file,) = await bench.coord.borrowed_indexes(clone)
    assert file == replace(bench.index.files[0], segment_id=own)
    assert await bench.coord.borrowed_indexes(bench.collections[0]) == ()
    await bench.coord.stop()


async def test_a_segment_that_has_grown_since_the_moment_lends_no_index(tmp_path: Path) -> None:
    """The index was made of more files than the clone has."""
    bench, _ = await indexed(tmp_path)
    bench.index.files = [replace(bench.index.files[0], rows=bench.index.files[0].rows + 1)]
    clone = await cloned(bench)
    assert await bench.coord.borrowed_indexes(clone) == ()
    await bench.coord.stop()


async def test_a_backup_keeps_index_files_until_its_lease_ends(tmp_path: Path) -> None:
    bench, _ = await indexed(tmp_path)
    snapshot = shown(bench, await backed_up(bench))
    (file,) = snapshot.index_files
    assert [path for path, _ in copied_files(snapshot)][-1] == file.path
    assert file.path not in {path for path, _ in data_files(snapshot)}
    bench.index.references = IndexReferences((), {}, 100)  # the source was compacted
    await bench.after(HOUR_MS / 1000 - 200)
    await bench.collected()
    assert file.path in bench.in_files()
    await bench.after(30_000)
    for _ in range(3):
        await bench.collected()
    assert file.path not in bench.in_files()
    await bench.coord.stop()


async def test_restored_index_files_have_paths_of_their_own(tmp_path: Path) -> None:
    bench, source = await indexed(tmp_path)
    backup = await backed_up(bench)
    before = shown(bench, backup)
    restore = await received(bench, backup)
    here = shown(bench, restore)
    (file,), (old,) = here.index_files, before.index_files
    assert not here.files & before.files
    assert file.build_id not in (old.build_id, here.collection_id)
    assert ids_for(before) == 3
    assert replace(file, build_id=old.build_id, path=old.path) == old
    copied(bench, restore)
    bench.store.put(file.path, CONTENT)
    home = await bench.coord.check_received(restore.snapshot_id)
    held = await bench.coord.hold_source(CloneSource(home, restore.snapshot_id))
    assert held.indexes == (INDEX,)
    clone = bench.defined(held)
    await bench.coord.watch_channels(clone)
    (own,) = [s for s in bench.segments() if s != source]
    assert await bench.coord.borrowed_indexes(clone) == (replace(file, segment_id=own),)
    for damage in (b"half", None):
        bench.store.delete(file.path)
        if damage is not None:
            bench.store.put(file.path, damage)
        assert await bench.coord.borrowed_indexes(clone) == (), "it is built"
    await bench.coord.stop()


async def test_a_restore_without_its_index_files_is_complete(tmp_path: Path) -> None:
    bench, _ = await indexed(tmp_path)
    restore = await received(bench, await backed_up(bench))
    copied(bench, restore)
    assert await bench.coord.check_received(restore.snapshot_id)
    await bench.coord.stop()


async def test_a_file_that_went_from_a_pin_to_a_build_during_a_round_stays(tmp_path: Path) -> None:
    """A clone takes over the file when the round has read the indexes, and its pin ends before the round
    reads the pins again: the indexes are read once more."""
    bench, _ = await indexed(tmp_path)
    path = bench.index.files[0].path
    held = await bench.coord.hold_backup(CID, NO_TIMESTAMP, HOUR_MS)
    looks: list[IndexReferences] = []

    async def index_references() -> IndexReferences:
        looks.append(IndexReferences((path,) if looks else (), {}, 100))
        if len(looks) == 1:
            await bench.coord.unpin_snapshot(held.snapshot_id)
        return looks[-1]

    async def nothing_pinned() -> PathDigests:
        return PathDigests()

    collector = bench.coord.role._collector
    collector._pins.pinned_files = nothing_pinned  # the pin was made after the round had read the pins

    bench.index.index_references = index_references  # type: ignore[method-assign]
    await bench.after(30_000)
    await bench.collected()
    assert len(looks) == 2
    assert path in bench.in_files()
    await bench.collected()
    assert len(looks) == 3, "no pin has ended since"
    await bench.coord.stop()
