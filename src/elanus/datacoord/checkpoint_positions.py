"""Where the checkpoints are, for processes that write the log: read from the metadata, without datacoord.

A process checks each pchannel before it writes to it, and again after it was cut off: then many pchannels are
checked at the same time. They share one look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from elanus.core.channels import pchannel_of
from elanus.core.timestamps import NO_TIMESTAMP
from elanus.datacoord.vchannel_table import VchannelTable
from elanus.meta.port import MetaStore
from elanus.meta.turns import in_turns

_KEPT_S = 5.0


class _Place(msgspec.Struct):
    position: int


class _Record(msgspec.Struct):
    """The part of `elanus.datacoord.vchannel_table.Vchannel` that says where its checkpoint is."""

    vchannel: str
    checkpoint: _Place
    dropped: int = NO_TIMESTAMP


class CheckpointPositions:
    """`elanus.log.port.HeldPositions` of the metadata. For one event loop."""

    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._found: Mapping[str, int] = {}
        self._read_again_s = float("-inf")
        self._reading = asyncio.Lock()

    async def __call__(self) -> Mapping[str, int]:
        """Return each pchannel's highest checkpoint. Dropped vchannels do not count. Raises `Unavailable`."""
        async with self._reading:
            now_s = asyncio.get_running_loop().time()
            if now_s >= self._read_again_s:
                self._found = await self._read()
                self._read_again_s = now_s + _KEPT_S
            return self._found

    async def _read(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        async for _, stored in in_turns(await self._meta.list(VchannelTable.prefix)):
            record = msgspec.json.decode(stored.value, type=_Record)
            if record.dropped == NO_TIMESTAMP:
                pchannel, position = pchannel_of(record.vchannel), record.checkpoint.position
                found[pchannel] = max(found.get(pchannel, position), position)
        return found
