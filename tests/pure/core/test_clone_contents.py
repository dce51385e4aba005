"""The contents of a collection at a moment, from manifests that know of later things."""

from __future__ import annotations

import numpy as np

from elanus.core.clones import as_of, deletes_as_of, folded_until
from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.segments import BinlogFile, DeltaLog, SegmentManifest
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, Timestamp
from elanus.querynode.visibility import Visibility


def file(first: int, last: int, until: int = 0) -> BinlogFile:
    return BinlogFile(f"{first}-{last}", 1, 1, Timestamp(first), Timestamp(last), until=Timestamp(until))


def manifest(*files: BinlogFile, folded: int = 0, commit_ts: int = 0) -> SegmentManifest:
    return SegmentManifest(
        SegmentID(1),
        CollectionID(1),
        PartitionID(1),
        "v",
        files,
        (),
        Timestamp(folded),
        commit_ts=Timestamp(commit_ts),
    )


def test_files_are_cut_or_left_out() -> None:
    (kept,) = as_of([manifest(file(1, 5), file(4, 9), file(7, 9)), manifest(file(8, 9))], Timestamp(6))
    assert kept.insert_logs == (
        file(1, 5),
        BinlogFile("4-9", 1, 1, Timestamp(4), Timestamp(6), until=Timestamp(6)),
    )


def test_a_clone_of_a_clone_shows_no_more_than_the_first() -> None:
    first = as_of([manifest(file(4, 9))], Timestamp(6))
    assert as_of(first, Timestamp(8)) == first
    (again,) = as_of(first, Timestamp(5))
    assert again.insert_logs[0].until == 5


def test_imported_rows_count_from_their_commit() -> None:
    imported = manifest(file(5, 5), commit_ts=5, folded=5)
    assert as_of([imported], Timestamp(4)) == ()
    assert as_of([imported], Timestamp(5)) == (imported,)
    assert folded_until([imported]) == NO_TIMESTAMP


def test_deletes_are_cut_too() -> None:
    logs = [DeltaLog("v", file(1, 9)), DeltaLog("v", file(7, 9))]
    (kept,) = deletes_as_of(logs, Timestamp(6))
    assert (kept.file.path, kept.file.until) == ("1-9", 6)


def test_rows_that_a_clone_leaves_out_are_seen_by_no_read_and_slow_none_down() -> None:
    shown = Visibility(np.array([3, MAX_TIMESTAMP, 5]))
    assert shown.at(Timestamp(9)).rows().tolist() == [0, 2]
    assert shown.at(Timestamp(9)) is shown.at(Timestamp(10)), "the answer is kept"
    assert shown.at(Timestamp(4)).rows().tolist() == [0]
