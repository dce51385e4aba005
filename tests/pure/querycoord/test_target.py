"""The memory that a segment is expected to take."""

from __future__ import annotations

from dataclasses import replace

from counting import turns_of
from fakes import CID, collection

from elanus.api.recovery import RecoveryInfo
from elanus.core.ids import BuildID, FieldID, IndexID, PartitionID, SegmentID
from elanus.core.placement import Piece
from elanus.core.segments import BinlogFile, IndexFile, SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP
from elanus.querycoord.planned_layout import pieces_of
from elanus.querycoord.target import Target

SEGMENT, ROWS = SegmentID(7), 1000
FILE_BYTES, INDEX_BYTES = 60_000, 55_000


def expected_bytes(disk_bytes: int, *, is_loaded: bool = True) -> tuple[int, int]:
    """The segment's memory, and a vector's bytes. ``is_loaded``: whether the vectors are loaded."""
    known = collection()
    width = sum(field.row_bytes_estimate for field in known.schema.vector_fields)
    field = next(field for field in known.schema.vector_fields)
    log = BinlogFile("insert_log/a", ROWS, FILE_BYTES, NO_TIMESTAMP, NO_TIMESTAMP)
    manifest = SegmentManifest(SEGMENT, CID, PartitionID(1), "c_1v0", (log,), (), NO_TIMESTAMP)
    file = IndexFile(
        BuildID(1),
        IndexID(1),
        FieldID(field.field_id),
        SEGMENT,
        "X",
        "L2",
        {},
        "index_files/a",
        ROWS,
        INDEX_BYTES,
        True,
        disk_bytes,
    )
    recovery = RecoveryInfo(CID, (), ())
    target = Target(known, (PartitionID(1),), recovery, {SEGMENT: manifest}, (), {SEGMENT: (file,)}, ())
    if not is_loaded:
        target = replace(target, files={}, left_out=frozenset({field.field_id}))
    return target.pieces([SEGMENT])[0].size_bytes, width


async def test_others_run_while_the_memory_of_many_segments_is_estimated() -> None:
    known = collection()
    log = BinlogFile("insert_log/a", ROWS, FILE_BYTES, NO_TIMESTAMP, NO_TIMESTAMP)
    segments = {
        s: SegmentManifest(s, CID, PartitionID(1), "c_1v0", (log,), (), NO_TIMESTAMP)
        for s in map(SegmentID, range(1, 5001))
    }
    target = Target(known, (PartitionID(1),), RecoveryInfo(CID, (), ()), segments, (), {}, ())
    found: list[Piece] = []

    async def estimate() -> None:
        found[:] = await pieces_of(target, [*segments])

    turns = await turns_of(estimate)
    assert max(turns) < 0.5 * sum(turns), turns
    assert found == target.pieces(segments)


def test_vectors_in_memory_count_once_and_the_files_too() -> None:
    taken, width = expected_bytes(0)
    assert taken == max(INDEX_BYTES, ROWS * width) + FILE_BYTES


def test_vectors_that_an_index_leaves_on_disk_take_no_memory() -> None:
    _, width = expected_bytes(0)
    on_disk = ROWS * width
    assert expected_bytes(on_disk)[0] == INDEX_BYTES - on_disk + FILE_BYTES - on_disk


def test_vectors_of_fields_that_are_not_loaded_take_no_memory() -> None:
    taken, width = expected_bytes(0, is_loaded=False)
    assert taken == FILE_BYTES - ROWS * width
