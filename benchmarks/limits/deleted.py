"""Delta logs written into the data directory of a stopped server, by the server's own functions.

Each is what a flush of a range leaves that has nothing but deletes. Only the log, Spark and the commit are
left out: to send a hundred million deletes would take hours.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.limits.stopped import Stopped, opened
from elanus.core.attempts import stamped
from elanus.core.ids import ALL_PARTITIONS
from elanus.core.messages import DeleteMessage
from elanus.pipeline.range_files import write_range

IN_A_LOG = 5_000_000
"""Deletes of one delta log."""
_IN_A_MESSAGE = 100_000


def add_deletes(data_dir: Path, how_many: int, first_key: int) -> None:
    """Write deletes of the keys from ``first_key`` on, in an order as drawn at random.

    The data directory must have exactly one collection with a flushed segment, whose vchannel they get. They
    are of the moment of its checkpoint. Raises `CannotStart` when a server uses the directory.
    """
    asyncio.run(_add(data_dir, how_many, first_key))


async def _add(data_dir: Path, how_many: int, first_key: int) -> None:
    async with opened(data_dir) as stopped:
        vchannel = stopped.vchannel
        for done in range(0, how_many, IN_A_LOG):
            name = stamped(1, uuid.uuid4().hex)
            messages = _messages(stopped, min(IN_A_LOG, how_many - done), first_key + done)
            outcome = await asyncio.to_thread(
                write_range, stopped.plan(name), messages, stopped.store, stopped.scratch, name
            )
            if outcome.delta is None:
                raise RuntimeError("a range of deletes left no delta log")
            vchannel = await stopped.manifests.add_delta(vchannel, outcome.delta, name)
        await stopped.state.put(vchannels=[vchannel])


def _messages(stopped: Stopped, count: int, first_key: int) -> Iterator[DeleteMessage]:
    chance = np.random.default_rng(first_key)
    keys = first_key + chance.permutation(count).astype(np.int64)
    for first in range(0, count, _IN_A_MESSAGE):
        yield DeleteMessage(
            stopped.vchannel.checkpoint.ts,
            stopped.vchannel.vchannel,
            stopped.template.collection_id,
            ALL_PARTITIONS,
            pa.array(keys[first : first + _IN_A_MESSAGE]),
        )
