"""A flush from its order to its commit, with a fault on the way; and what must be true at its end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from data_course import Contents, DataCourse
from fakes import CID, collection
from injected import Fault

from elanus.core.channels import pchannel_of
from elanus.core.jobs import JobKind
from elanus.core.segments import SegmentState

BATCHES, BATCH_ROWS, DELETED = 3, 10, 4


@dataclass(frozen=True)
class Ending:
    """``errors``: what jobs failed with. ``after``: when garbage has been collected as well."""

    flushed: bool
    errors: tuple[str, ...]
    before: Contents
    after: Contents


class Course(DataCourse):
    """With ``damaged`` there is a second vchannel, and a row of it in the log is not what it was."""

    struck = JobKind.FLUSH

    def __init__(self, directory: Path, fault: Fault, *, damaged: bool = False) -> None:
        super().__init__(directory, fault, collection(shards=2 if damaged else 1))
        self._damaged = damaged

    async def run(self) -> Ending:
        """From the first row to the rest after the fault."""
        first = await self.start()
        segment = await self.write(BATCH_ROWS, BATCHES)
        await self.delete(range(DELETED))
        if self._damaged:
            await self.write(BATCH_ROWS, vchannel=self.collection.vchannels[1])
            self._damage(pchannel_of(self.collection.vchannels[1]))
            self.fault.struck.set()
        await self.coord.flush(CID)
        await self.tick()
        await self.replaced(first)
        await self.flushed(segment)
        await self.over(first)
        (info,) = await self.coord.segments_by_id((segment,))
        before = await self.contents()
        await self.collected()
        ending = Ending(info.state is SegmentState.FLUSHED, tuple(self.errors), before, await self.contents())
        await self.stop()
        return ending

    def _damage(self, pchannel: str) -> None:
        entries = self.log._streams[pchannel].entries
        (at,) = (n for n, entry in enumerate(entries) if entry.header.rows)
        payload = memoryview(b"\xff" * entries[at].payload_bytes)
        entries[at] = replace(entries[at], payload=payload)
