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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from elanus.api.datacoord import SegmentOutput
from elanus.core.attempts import stamped
from elanus.core.catalog import Checkpoint
from elanus.core.ids import SegmentID
from elanus.core.messages import InsertMessage
from elanus.core.offload import Offload
from elanus.core.schema import CollectionSchema
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import Timestamp
from elanus.datacoord.manifests import Manifests
from elanus.datacoord.state import DataState
from elanus.log.port import Position
from elanus.meta.sqlite import SqliteMeta
from elanus.pipeline.range_files import write_range
from elanus.pipeline.ranges import FlushPlan
from elanus.rootcoord.ids import IdAllocator
from elanus.server.data_dir import DataDir
from elanus.storage.local import LocalStore

_AT_ONCE = 1000
"""How many segments are persisted together."""
_IN_A_RANGE = 100
"""How many are written as one range. Ranges are written at the same time: each waits for the disk."""


def add_segments(data_dir: Path, how_many: int, rows: int, first_key: int) -> None:
    """Write so many segments of ``rows`` rows each, with keys from ``first_key`` on.

    The data directory must have exactly one collection with a flushed segment, whose partition and vchannel
    they get. Raises `CannotStart` when a server uses the directory.
    """
    opened = DataDir(data_dir)
    try:
        asyncio.run(_add(opened, how_many, rows, first_key))
    finally:
        opened.close()


async def _add(opened: DataDir, how_many: int, rows: int, first_key: int) -> None:
    meta = SqliteMeta(opened.paths.meta)
    with ThreadPoolExecutor(1) as thread:
        try:
            store = LocalStore(opened.root / "files")
            manifests = Manifests(store, _offload(thread))
            state, ids = DataState(meta, manifests), IdAllocator(meta)
            await state.start()
            await ids.start()
            for done in range(0, how_many, _AT_ONCE):
                count = min(_AT_ONCE, how_many - done)
                first_id = await ids.allocate(count)
                await _add_some(
                    state, manifests, store, opened, range(first_id, first_id + count), rows,
                    first_key + done * rows,
                )  # fmt: skip
        finally:
            await meta.close()


def _offload(thread: ThreadPoolExecutor) -> Offload:
    async def offload(function, /, *args):  # type: ignore[no-untyped-def]
        return await asyncio.get_running_loop().run_in_executor(thread, function, *args)

    return offload


async def _add_some(
    state: DataState,
    manifests: Manifests,
    store: LocalStore,
    opened: DataDir,
    segment_ids: Sequence[int],
    rows: int,
    first_key: int,
) -> None:
    template = next(info for info in state.segments() if info.state is SegmentState.FLUSHED)
    vchannel = state.vchannel(template.vchannel)
    if vchannel is None:
        raise RuntimeError(f"the segment {template.segment_id} has no vchannel")
    infos = [_record(template, SegmentID(segment_id)) for segment_id in segment_ids]
    name = stamped(1, uuid.uuid4().hex)
    plan = _plan(template, vchannel.schema, vchannel.checkpoint, name, opened)

    async def write(first: int) -> Sequence[SegmentOutput]:
        some = infos[first : first + _IN_A_RANGE]
        messages = _messages(some, plan.schema, template.created, rows, first_key + first * rows)
        outcome = await asyncio.to_thread(write_range, plan, messages, store, opened.root / "scratch", name)
        return outcome.segments

    written = await asyncio.gather(*map(write, range(0, len(infos), _IN_A_RANGE)))
    outputs = {output.segment_id: output for segments in written for output in segments}
    pairs = [(info, outputs[info.segment_id]) for info in infos]
    await state.put(segments=await manifests.add_outputs(pairs, name))


def _record(template: SegmentInfo, segment_id: SegmentID) -> SegmentInfo:
    return replace(template, segment_id=segment_id, rows=0, size_bytes=0, manifest="", compacted_from=())


def _plan(
    template: SegmentInfo, schema: CollectionSchema, checkpoint: Checkpoint, name: str, opened: DataDir
) -> FlushPlan:
    return FlushPlan(
        attempt=name,
        collection_id=template.collection_id,
        schema=schema,
        vchannel=template.vchannel,
        pchannel="",
        start=checkpoint,
        until=checkpoint.ts,
        stop=Position(checkpoint.position),
        log_url="",
        store_url="",
        scratch_dir=str(opened.root / "scratch"),
    )


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
