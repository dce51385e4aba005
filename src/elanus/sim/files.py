"""What lies in binlogs, compared with the truth: every row up to the checkpoints, once, and every delete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from elanus.core.ids import PartitionID
from elanus.core.invariants import InvariantBroken
from elanus.core.schema import TIMESTAMP_FIELD
from elanus.core.segments import DeltaLog, SegmentInfo, SegmentState
from elanus.core.timestamps import NO_TIMESTAMP
from elanus.datacoord.state import Vchannel
from elanus.sim.records import Records
from elanus.sim.truth import KEY, Row, Truth
from elanus.storage.binlog import read_columns
from elanus.storage.delta_log import PARTITION_COLUMN, PRIMARY_KEY_COLUMN, read_delta_log
from elanus.storage.manifests import read_manifest
from elanus.storage.port import ObjectStore


def check_files(records: Records, truth: Truth, store: ObjectStore) -> None:
    """Raises `InvariantBroken`."""
    for vchannel in records.vchannels.values():
        if not vchannel.dropping:
            _check_rows(vchannel, records, truth, store)
            _check_deletes(vchannel, truth, store)
    for info in records.segments.values():
        if info.state is not SegmentState.DROPPED:
            rows = truth.contents(info.collection_id).rows
            _check_segment(info, [row for row in rows if row.segment_id == info.segment_id])


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


def _check_rows(vchannel: Vchannel, records: Records, truth: Truth, store: ObjectStore) -> None:
    contents = truth.contents(vchannel.collection_id)
    checkpoint_ts = vchannel.checkpoint.ts
    there: Counter[tuple[int, ...]] = Counter()
    gone: set[PartitionID] = {partition_id for _, partition_id in contents.dropped}
    for info in records.segments.values():
        if info.vchannel == vchannel.vchannel and info.manifest and info.partition_id not in gone:
            if info.state is SegmentState.DROPPED:
                continue
            table = read_columns(store, read_manifest(store, info.manifest), [TIMESTAMP_FIELD, KEY])
            there.update(
                zip(table.column(KEY).to_pylist(), table.column(TIMESTAMP_FIELD).to_pylist(), strict=True)
            )
    expected: Counter[tuple[int, ...]] = Counter(
        (row.key, row.born)
        for row in contents.rows
        if row.vchannel == vchannel.vchannel and row.born <= checkpoint_ts and row.partition_id not in gone
    )
    _compare("rows", vchannel, there, expected)


def _check_deletes(vchannel: Vchannel, truth: Truth, store: ObjectStore) -> None:
    there: Counter[tuple[int, ...]] = Counter()
    if vchannel.deltas:
        for log in msgspec.json.decode(store.get(vchannel.deltas), type=tuple[DeltaLog, ...]):
            table = read_delta_log(store, log.file)
            columns = (PRIMARY_KEY_COLUMN, TIMESTAMP_FIELD, PARTITION_COLUMN)
            there.update(zip(*(table.column(name).to_pylist() for name in columns), strict=True))
    expected: Counter[tuple[int, ...]] = Counter(
        (d.key, d.ts, d.partition_id)
        for d in truth.contents(vchannel.collection_id).deletions
        if d.vchannel == vchannel.vchannel and d.ts <= vchannel.checkpoint.ts
    )
    _compare("deletes", vchannel, there, expected)


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
