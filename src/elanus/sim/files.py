"""Compares binlogs with the truth: every row up to the checkpoints exactly once, and every delete.

Some entries may be missing. Compaction must remove rows whose delete is folded into their segment. It may
remove rows that have expired, and deletes that concern no row in a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.invariants import InvariantBroken
from elanus.core.schema import TIMESTAMP_FIELD
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, Timestamp
from elanus.datacoord.vchannel_table import Vchannel
from elanus.sim.records import Records
from elanus.sim.truth import KEY, Contents, Deletion, Row, Truth
from elanus.storage.binlog import read_columns
from elanus.storage.delta_log import PARTITION_COLUMN, PRIMARY_KEY_COLUMN, read_delta_log
from elanus.storage.manifests import read_delta_list, read_manifest
from elanus.storage.port import ObjectStore


def check_files(records: Records, truth: Truth, store: ObjectStore) -> None:
    """Check all files against the truth. Raises `InvariantBroken`."""
    folds = _Folds(records, store)
    for vchannel in records.vchannels.values():
        if not vchannel.dropping:
            contents = truth.contents(vchannel.collection_id)
            maybe = _maybe_folded(vchannel, records, contents, store, folds)
            kept = _kept_rows(vchannel, contents, folds, maybe)
            _check_rows(vchannel, records, contents, store, kept, maybe)
            _check_deletes(vchannel, records, contents, store, kept)
    written: dict[tuple[CollectionID, SegmentID], list[Row]] = {}
    for collection_id, contents in truth.collections():
        for row in contents.rows:
            written.setdefault((collection_id, row.segment_id), []).append(row)
    for info in records.segments.values():
        if info.state is not SegmentState.DROPPED:
            _check_segment(info, written.get((info.collection_id, info.segment_id), ()))


def _check_segment(info: SegmentInfo, rows: Sequence[Row]) -> None:
    if len(rows) > info.max_rows:
        raise InvariantBroken(
            "SEG4",
            f"segment {info.segment_id} has {len(rows)} rows, and room for {info.max_rows}",
            tuple(row.key for row in rows),
        )
    late = [row for row in rows if NO_TIMESTAMP < info.sealed_at < row.born]
    if late:
        raise InvariantBroken(
            "SEG3",
            f"segment {info.segment_id} was sealed at {info.sealed_at}, and has a row of {late[0].born}",
            tuple(row.key for row in late),
        )


def _check_rows(
    vchannel: Vchannel,
    records: Records,
    contents: Contents,
    store: ObjectStore,
    kept: Sequence[Row],
    maybe: Sequence[Row],
) -> None:
    there: Counter[tuple[int, ...]] = Counter()
    gone = _dropped_partitions(contents)
    for info in records.segments.values():
        if info.vchannel == vchannel.vchannel and info.manifest and info.partition_id not in gone:
            if info.state is SegmentState.DROPPED:
                continue
            table = read_columns(store, read_manifest(store, info.manifest), [TIMESTAMP_FIELD, KEY])
            stamps = table.column(TIMESTAMP_FIELD).to_pylist()
            found = zip(table.column(KEY).to_pylist(), stamps, strict=True)
            there.update((key, ts) for key, ts in found if ts != MAX_TIMESTAMP)  # a clone leaves those out
    expired_until = records.expired_until(vchannel.vchannel)
    expired, needed = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
    for row in kept:
        (needed if row.born > expired_until else expired)[row.key, row.born] += 1
    expired.update((row.key, row.born) for row in maybe)
    _compare("rows", vchannel, there, needed + (there & expired))


def _dropped_partitions(contents: Contents) -> set[PartitionID]:
    return {partition_id for _, partition_id in contents.dropped}


def _kept_rows(
    vchannel: Vchannel, contents: Contents, folds: _Folds, maybe_folded: Sequence[Row]
) -> list[Row]:
    """The rows that must be in files: all up to the checkpoint, less those that compaction had to remove."""
    gone = _dropped_partitions(contents)
    maybe = {id(row) for row in maybe_folded}
    return [
        row
        for row in contents.rows
        if row.vchannel == vchannel.vchannel
        and id(row) not in maybe
        and (row.is_imported or row.born <= vchannel.checkpoint.ts)
        and row.partition_id not in gone
        and (row.is_cloned or row.died > folds.of(row.segment_id)[1])
    ]


def _maybe_folded(
    vchannel: Vchannel, records: Records, contents: Contents, store: ObjectStore, folds: _Folds
) -> list[Row]:
    """Rows whose deletes may be folded into the segment that they are in: it is not known which one that is.

    They are from the source of a clone, or their segment was cut into clusters that have folded in different
    deletes since. No row that a read may return is among them.
    """
    cut = [
        row
        for row in contents.rows
        if row.vchannel == vchannel.vchannel and not row.is_cloned
        if (bounds := folds.of(row.segment_id))[0] < row.died <= bounds[1]
    ]
    return cut + _maybe_folded_in_a_clone(vchannel, records, contents, store)


class _Folds:
    """Up to where the deletes of a segment's rows are folded in. Reads each manifest once."""

    def __init__(self, records: Records, store: ObjectStore) -> None:
        self._records = records
        self._store = store
        self._known: dict[SegmentID, tuple[Timestamp, Timestamp]] = {}

    def of(self, segment_id: SegmentID) -> tuple[Timestamp, Timestamp]:
        """Up to where all of the segments that hold its rows now have folded in deletes, and up to where one
        has."""
        if segment_id not in self._known:
            homes = self._records.homes_of(segment_id)
            found = [self._folded(home, info) for home, info in homes.items()]
            self._known[segment_id] = min(found), max(found)
        return self._known[segment_id]

    def _folded(self, home: SegmentID, info: SegmentInfo | None) -> Timestamp:
        if info is None:
            return self._records.emptied_until(home)
        return read_manifest(self._store, info.manifest).deletes_from if info.manifest else NO_TIMESTAMP


def _maybe_folded_in_a_clone(
    vchannel: Vchannel, records: Records, contents: Contents, store: ObjectStore
) -> list[Row]:
    """Rows from the source of a clone whose deletes may be folded in."""
    rows = [r for r in contents.rows if r.is_cloned and r.vchannel == vchannel.vchannel]
    if not rows:
        return []
    infos = [s for s in records.segments.values() if s.vchannel == vchannel.vchannel and s.manifest]
    live = [s for s in infos if s.state is not SegmentState.DROPPED]
    bounds = [read_manifest(store, info.manifest).deletes_from for info in live]
    origin = max((row.born for row in rows), default=NO_TIMESTAMP)
    bound = max(records.folded_until(vchannel.vchannel), *bounds, origin, NO_TIMESTAMP)
    return [row for row in rows if row.died <= bound]


def _check_deletes(
    vchannel: Vchannel, records: Records, contents: Contents, store: ObjectStore, kept_rows: Sequence[Row]
) -> None:
    """Check that every delete is in a file, unless it concerns no row in a file: compaction removes those."""
    there: Counter[tuple[int, ...]] = Counter()
    if vchannel.deltas:
        for log in read_delta_list(store, vchannel.deltas):
            table = read_delta_log(store, log.file)
            columns = (PRIMARY_KEY_COLUMN, TIMESTAMP_FIELD, PARTITION_COLUMN)
            there.update(zip(*(table.column(name).to_pylist() for name in columns), strict=True))
    kept: dict[int, list[Row]] = {}
    expired_until = records.expired_until(vchannel.vchannel)
    for row in kept_rows:
        if row.born > expired_until:
            kept.setdefault(row.key, []).append(row)
    written = [
        d
        for d in contents.deletions
        if d.vchannel == vchannel.vchannel and (d.task_id or d.ts <= vchannel.checkpoint.ts)
    ]
    needed = Counter(_place(d) for d in written if any(d.concerns(row) for row in kept.get(d.key, ())))
    done_with = Counter(map(_place, written)) - needed
    _compare("deletes", vchannel, there, needed + (there & done_with))


def _place(deletion: Deletion) -> tuple[int, ...]:
    return (deletion.key, deletion.ts, deletion.partition_id)


def _compare(
    what: str, vchannel: Vchannel, there: Counter[tuple[int, ...]], expected: Counter[tuple[int, ...]]
) -> None:
    if there == expected:
        return
    lost, added = expected - there, there - expected
    raise InvariantBroken(
        "SEG1",
        f"{what} of {vchannel.vchannel} in files up to {vchannel.checkpoint.ts}: {len(lost)} missing "
        f"({sorted(lost)[:3]}), {len(added)} too many ({sorted(added)[:3]})",
        tuple(item[0] for item in (*lost, *added)),
    )
