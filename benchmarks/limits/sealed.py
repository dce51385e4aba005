"""Sealed segments written into the data directory of a stopped server, by the server's own functions.

Each has an insert log, a stats log, a manifest and a record, as a flush leaves them
(`elanus.pipeline.range_files.write_range`, `elanus.datacoord.manifests.Manifests`,
`elanus.datacoord.state.DataState`). Only the log, Spark and the commit are left out: by real flushes, twenty
thousand segments would take hours.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.limits.stopped import Stopped, opened
from elanus.api.datacoord import SegmentOutput
from elanus.core.attempts import stamped
from elanus.core.ids import SegmentID
from elanus.core.messages import InsertMessage
from elanus.core.schema import CollectionSchema
from elanus.core.segments import SegmentInfo
from elanus.core.timestamps import Timestamp
from elanus.pipeline.range_files import write_range

_AT_ONCE = 1000
"""How many segments are persisted together."""
_IN_A_RANGE = 100
"""How many are written as one range. Ranges are written at the same time: each waits for the disk."""


def add_segments(data_dir: Path, how_many: int, rows: int, first_key: int) -> None:
    """Write so many segments of ``rows`` rows each, with keys from ``first_key`` on.

    The data directory must have exactly one collection with a flushed segment, whose partition and vchannel
    they get. Raises `CannotStart` when a server uses the directory.
    """
    asyncio.run(_add(data_dir, how_many, rows, first_key))


async def _add(data_dir: Path, how_many: int, rows: int, first_key: int) -> None:
    async with opened(data_dir) as stopped:
        for done in range(0, how_many, _AT_ONCE):
            count = min(_AT_ONCE, how_many - done)
            first_id = await stopped.ids.allocate(count)
            await _add_some(stopped, range(first_id, first_id + count), rows, first_key + done * rows)


async def _add_some(stopped: Stopped, segment_ids: Sequence[int], rows: int, first_key: int) -> None:
    template, store = stopped.template, stopped.store
    infos = [_record(template, SegmentID(segment_id)) for segment_id in segment_ids]
    name = stamped(1, uuid.uuid4().hex)
    plan = stopped.plan(name)

    async def write(first: int) -> Sequence[SegmentOutput]:
        some = infos[first : first + _IN_A_RANGE]
        messages = _messages(some, plan.schema, template.created, rows, first_key + first * rows)
        outcome = await asyncio.to_thread(write_range, plan, messages, store, stopped.scratch, name)
        return outcome.segments

    written = await asyncio.gather(*map(write, range(0, len(infos), _IN_A_RANGE)))
    outputs = {output.segment_id: output for segments in written for output in segments}
    pairs = [(info, outputs[info.segment_id]) for info in infos]
    await stopped.state.put(segments=await stopped.manifests.add_outputs(pairs, name))


def _record(template: SegmentInfo, segment_id: SegmentID) -> SegmentInfo:
    return replace(template, segment_id=segment_id, rows=0, size_bytes=0, manifest="", compacted_from=())


def _messages(
    infos: Sequence[SegmentInfo], schema: CollectionSchema, ts: Timestamp, rows: int, first_key: int
) -> Iterator[InsertMessage]:
    chance = np.random.default_rng(first_key)
    key_field, vector_field = schema.primary_field, schema.vector_fields[0]
    for number, info in enumerate(infos):
        first = first_key + number * rows
        vectors = chance.random((rows, vector_field.dim), dtype=np.float32)
        columns = {
            key_field.name: pa.array(range(first, first + rows), pa.int64()),
            vector_field.name: pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vector_field.dim),
        }
        batch = pa.RecordBatch.from_pydict(columns)
        yield InsertMessage(
            ts, info.vchannel, info.collection_id, info.partition_id, info.segment_id, first, batch
        )
