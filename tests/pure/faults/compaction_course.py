"""A compaction from its plan to its commit, with a fault on the way; and what must be true at its end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from data_course import NO_COMPACTION, Contents, DataCourse
from fakes import CID, collection
from injected import Fault

from elanus.core.compaction import CompactionThresholds
from elanus.core.ids import SegmentID
from elanus.core.jobs import JobKind
from elanus.core.segments import SegmentState

SEGMENT_ROWS, DELETED = 10, 4
SEGMENTS = 2
DELTAS = 3


@dataclass(frozen=True)
class Ending:
    """``reasons``: why plans failed. ``after``: when garbage has been collected as well."""

    reasons: tuple[str, ...]
    damaged_path: str
    before: Contents
    after: Contents


class Course(DataCourse):
    """Two small segments become one without its deleted rows. With ``damaged`` a third cannot be read."""

    struck = JobKind.COMPACTION

    def __init__(self, directory: Path, fault: Fault, *, damaged: bool = False) -> None:
        super().__init__(directory, fault, collection(), replace(NO_COMPACTION, automatic=True))
        self._damaged = damaged

    async def run(self) -> Ending:
        first = await self.start()
        path, intact = await self._damage(await self._flush()) if self._damaged else ("", b"")
        await self._flush()
        await self.delete(range(self._next_key - SEGMENT_ROWS, self._next_key - SEGMENT_ROWS + DELETED))
        await self._flush()
        await self.replaced(first)
        await self.until(self._is_compacted)
        await self.over(first)
        if self._damaged:
            (self.root_dir / path).write_bytes(intact)
        before = _without_deltas(await self.contents())
        await self.collected()
        reasons = tuple(plan.reason for plan in self.coord.context.state.plans() if plan.reason)
        ending = Ending(reasons, path, before, await self.contents())
        await self.stop()
        return ending

    async def _flush(self) -> SegmentID:
        segment = await self.write(SEGMENT_ROWS)
        await self.coord.flush(CID)
        await self.flushed(segment)
        return segment

    async def _damage(self, segment: SegmentID) -> tuple[str, bytes]:
        """The path of the damaged file, and what it was."""
        (manifest,) = await self.manifests.of_segments(await self.coord.segments_by_id((segment,)))
        path = manifest.insert_logs[0].path
        intact = (self.root_dir / path).read_bytes()
        (self.root_dir / path).write_bytes(b"no Parquet" * 100)
        self.fault.struck.set()
        return path, intact

    async def _is_compacted(self) -> bool:
        """Whether an output stands in the place of inputs."""
        infos = await self.coord.segments(CID)
        return any(info.compacted_from and info.state is SegmentState.FLUSHED for info in infos)


class DeltaCourse(DataCourse):
    """Small delta logs of a vchannel become one."""

    struck = JobKind.COMPACTION

    def __init__(self, directory: Path, fault: Fault) -> None:
        thresholds = CompactionThresholds(0.9, 1 << 30, 100, DELTAS)
        plan = replace(NO_COMPACTION.plan, thresholds=thresholds, retention_s=3600)
        super().__init__(directory, fault, collection(), replace(NO_COMPACTION, automatic=True, plan=plan))

    async def run(self) -> Ending:
        first = await self.start()
        segment = await self.write(SEGMENT_ROWS)
        await self.coord.flush(CID)
        await self.flushed(segment)
        for number in range(1, DELTAS + 1):
            await self._delete(number)
        await self.replaced(first)
        await self.until(self._is_merged)
        await self.over(first)
        before = _without_deltas(await self.contents())
        await self.collected()
        reasons = tuple(plan.reason for plan in self.coord.context.state.plans() if plan.reason)
        ending = Ending(reasons, "", before, await self.contents())
        await self.stop()
        return ending

    async def _delete(self, number: int) -> None:
        """A delete that is in a delta log of its own, the one of this number."""
        await self.delete(range(number))
        await self.coord.flush(CID)

        async def is_there() -> bool:
            await self.tick()
            return await self.delta_rows() >= sum(range(number + 1))

        await self.until(is_there)

    async def delta_rows(self) -> int:
        return sum(await self._delta_logs())

    async def _is_merged(self) -> bool:
        return len(await self._delta_logs()) == 1

    async def _delta_logs(self) -> list[int]:
        """How many rows each has."""
        recovery = await self.coord.recovery_info(CID)
        return [log.file.rows for vchannel in recovery.vchannels for log in vchannel.delta_logs]


def _without_deltas(contents: Contents) -> Contents:
    """Delta logs that were folded in are nobody's any more, whatever struck."""
    return replace(contents, orphans=tuple(o for o in contents.orphans if not o.startswith("delta_log/")))
