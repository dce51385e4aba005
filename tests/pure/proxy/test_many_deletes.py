"""A million keys are deleted as arrays: the interpreter's work does not grow with their number.

Calls of Python functions are counted, all along the way of a delete: filter text, shards, log entries,
and the rows of a node. A loop over keys anywhere would be seen as hundreds of thousands.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fakes import CID, schema

from elanus.core.channels import vchannel_name
from elanus.core.ids import ALL_PARTITIONS, PartitionID, SegmentID
from elanus.core.limits import LOG_ENTRY_TARGET_BYTES
from elanus.core.schema import DataType
from elanus.core.timestamps import Timestamp
from elanus.log.codec import decode, encode
from elanus.log.port import LogEntry, Position
from elanus.proxy.role.plans import Plans
from elanus.proxy.role.shards import keys_by_shard
from elanus.proxy.role.writes import delete_messages
from elanus.querynode.deletes import deletes_of_messages
from elanus.querynode.growing import GrowingSegment, NewRows

KEYS = 1_000_000
CALLS_MAX = 5_000
SHARDS = [vchannel_name("by-dev-rootcoord-dml_0", CID, n) for n in range(2)]


def calls_during(work: Callable[[], Any]) -> tuple[Any, int]:
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        return work(), calls
    finally:
        sys.setprofile(None)


def written_and_read(messages: list[Any]) -> list[Any]:
    """The messages after their way through the log."""
    read = []
    for message in messages:
        entry = encode(message)
        payload = memoryview(b"".join(entry.payload))
        assert len(payload) <= 1.1 * LOG_ENTRY_TARGET_BYTES
        read.append(decode(LogEntry(Position(0), Position(1), entry.header, payload, len(payload))))
    return read


def segment_of(keys: pa.Array) -> GrowingSegment:
    rows = len(keys)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2 * rows, np.float32)), 2)
    batch = pa.RecordBatch.from_arrays(
        [keys, pa.array(np.zeros(rows)), vectors], schema=schema(key=_type_of(keys)).arrow_schema
    )
    segment = GrowingSegment(SegmentID(1), PartitionID(1), schema(key=_type_of(keys)), {})
    segment.append([NewRows(batch, np.full(rows, 5, np.int64))])
    return segment


def _type_of(keys: pa.Array) -> DataType:
    return DataType.INT64 if pa.types.is_integer(keys.type) else DataType.VARCHAR


@pytest.mark.slow
@pytest.mark.parametrize("key", [DataType.INT64, DataType.VARCHAR])
def test_a_list_of_a_million_keys_is_never_looped_over(key: DataType) -> None:
    numbers = np.random.default_rng(3).permutation(KEYS)
    keys = pa.array(numbers) if key is DataType.INT64 else pa.array(numbers).cast(pa.string())
    quote = "" if key is DataType.INT64 else '"'
    listed = ",".join(f"{quote}{number}{quote}" for number in numbers)
    Plans(schema()).filter(
        f"pk in [{'1,' * 300_000}2]", {}
    )  # the parser is made on first use, for long lists too
    segment = segment_of(keys)

    def delete() -> int:
        named = Plans(schema(key=key)).filter(f"pk in [{listed}]", {}).primary_keys()
        shards = keys_by_shard(named, SHARDS)
        messages = delete_messages(CID, ALL_PARTITIONS, shards, Timestamp(9))
        segment.delete(deletes_of_messages(written_and_read(messages), "pk"))
        return len(named)

    named, calls = calls_during(delete)
    assert named == KEYS
    assert sum(int(np.count_nonzero(block.deleted_ts == 9)) for block in segment.blocks) == KEYS
    assert calls < CALLS_MAX


def test_a_filter_of_many_keys_is_not_kept_and_others_are() -> None:
    plans = Plans(schema())
    many = f"pk in [{','.join(map(str, range(100_000)))}]"
    assert plans.filter(many, {}) is not plans.filter(many, {})
    assert plans.filter("pk in [1]", {}) is plans.filter("pk in [1]", {})
