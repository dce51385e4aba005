"""Bugs, planted one at a time into the product's code: what the simulator has to find.

Each is a patch that a test applies and takes back; the product knows nothing of them. ``found_as`` names the
invariants under which a finding counts: a bug that is found for a wrong reason is not found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import planted_clones as clones
import planted_clusters as clusters
import planted_compaction as compaction
import planted_deletes as deletes
import planted_expiry as expiry
import planted_fields as fields
import planted_garbage as garbage
import planted_imports as imports
import planted_indexes as indexes
import planted_loads as loads
import planted_names as names
import planted_ownership as ownership
import planted_partitions as partitions
import planted_reading as reading
import planted_slowness as slowness
import planted_upserts as upserts
import pytest
from planted_profiles import OLDER, PROFILES

from elanus.api.querynode import SealedSegmentsChange
from elanus.core import packs, ticks
from elanus.core.allocation import OpenSegment
from elanus.core.catalog import Checkpoint
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import LOGICAL_BITS, MAX_TIMESTAMP, Timestamp
from elanus.datacoord.attempts import Attempts
from elanus.datacoord.checkpoints import Checkpoints
from elanus.datacoord.commits import Commits
from elanus.datacoord.datanodes import DataNodes
from elanus.datacoord.flushing import Flushing
from elanus.datacoord.segment_allocator import SegmentAllocator
from elanus.meta.session import Session
from elanus.proxy.role.proxy import Proxy
from elanus.proxy.role.queues import DmQueue, Turn
from elanus.proxy.role.read_path import ReadPath
from elanus.proxy.role.time_ticker import TimeTicker
from elanus.proxy.role.writes import LogWriter
from elanus.querynode.deletes import DeleteBuffer
from elanus.querynode.loaded_collection import LoadedCollection
from elanus.querynode.service_clock import ServiceClock
from elanus.rootcoord import tso
from elanus.rootcoord.coord import RootCoord
from elanus.sim.plan import draw
from elanus.sim.run import run

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Bug:
    """``seeds``: how many the simulator may take to find it, from ``first_seed`` on."""

    name: str
    plant: Plant
    found_as: frozenset[str]
    seeds: int = 12
    first_seed: int = 1


def tick_one_too_high(patch: pytest.MonkeyPatch) -> None:
    """A proxy reports up to its oldest unfinished write instead of below it."""

    def report(now: Timestamp, oldest: Any) -> tuple[Timestamp, dict[str, Timestamp]]:
        return now, {pchannel: min(now, ts) for pchannel, ts in oldest.items()}

    patch.setattr("elanus.proxy.role.time_ticker.tick_report", report)


def unfinished_writes_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A proxy reports the present, whatever it has begun."""
    patch.setattr("elanus.proxy.role.time_ticker.tick_report", lambda now, oldest: (now, {}))


def one_proxy_is_enough(patch: pytest.MonkeyPatch) -> None:
    """A tick is the maximum over the proxies, not the minimum."""

    def passable(self: ticks.TickBarrier, pchannel: str) -> Timestamp:
        reports = [report for report in self._reports.values() if report is not None]
        return max((channels.get(pchannel, default) for default, channels in reports), default=Timestamp(0))

    patch.setattr(ticks.TickBarrier, "passable", passable)


def late_rule_dropped(patch: pytest.MonkeyPatch) -> None:
    """A message behind its tick is applied with the next pack."""

    def take(self: packs.PackAssembler[Any], header: Any, position: int, item: Any) -> None:
        ts = max(header.ts, Timestamp(self._tick + 1))
        self._waiting.append(packs._Waiting(ts, position, self._tick, self._epoch, item))

    patch.setattr(packs.PackAssembler, "_take_message", take)


def range_committed_twice(patch: pytest.MonkeyPatch) -> None:
    """A commit looks neither at where the vchannel stands, nor at who makes it, nor at its attempt."""

    def unchecked(self: Commits, commit: Any) -> Any:
        return self._state.vchannel(commit.vchannel)

    patch.setattr(Commits, "_checked", unchecked)
    patch.setattr(DataNodes, "check_owner", lambda self, vchannel, epoch: None)
    patch.setattr(Attempts, "check", lambda self, number: None)


def switched_before_the_load(patch: pytest.MonkeyPatch) -> None:
    """A new version lets go of the growing copy of segments whose sealed copy is not there."""
    announce = LoadedCollection.announce

    def early(self: LoadedCollection, change: SealedSegmentsChange) -> None:
        there = self.staged.keys() | self.serving.keys()
        missing = {s for s in change.online if s not in there}
        for channel in self.channels.values():
            channel.release(missing)
        announce(self, replace(change, online=tuple(s for s in change.online if s in there)))

    async def not_loaded(self: Any, node_id: Any, segment_ids: Any, target: Any) -> None:
        return None

    patch.setattr(LoadedCollection, "announce", early)
    patch.setattr("elanus.querycoord.node_loads.NodeLoads._load", not_loaded)


def growing_copy_kept(patch: pytest.MonkeyPatch) -> None:
    """Handoff puts the sealed segment online and leaves the growing one, which de-duplication hides."""
    patch.setattr("elanus.querynode.followed_vchannel.FollowedVchannel.release", lambda self, segment_ids: [])


def deletes_forgotten_on_handoff(patch: pytest.MonkeyPatch) -> None:
    """A segment that was loaded misses the deletes since its checkpoint."""
    patch.setattr(DeleteBuffer, "since", lambda self, ts: [])


def delta_logs_not_read(patch: pytest.MonkeyPatch) -> None:
    """A sealed segment is loaded without the deletes that lie in files."""
    patch.setattr("elanus.querynode.delta_logs.read_delta_log", lambda store, file: _no_deletes(store, file))


def _no_deletes(store: Any, file: Any) -> Any:
    from elanus.storage.delta_log import read_delta_log

    return read_delta_log(store, file).slice(0, 0)


def delete_concerns_its_own_upsert(patch: pytest.MonkeyPatch) -> None:
    """A delete also takes rows of its own timestamp."""
    from elanus.querynode import visibility as visible

    enter = visible.apply_deletes

    def at_or_before(deleted_ts: Any, row_ts: Any, rows: Any, delete_ts: Any) -> int:
        return enter(deleted_ts, row_ts - 1, rows, delete_ts)

    patch.setattr(visible, "apply_deletes", at_or_before)


def allocations_kept(patch: pytest.MonkeyPatch) -> None:
    """A proxy reports that it gave its allocations back, and continues to use them."""

    async def keep(self: Proxy, collection_id: Any) -> Timestamp:
        return Timestamp(0)

    patch.setattr(Proxy, "return_allocations", keep)


def checkpoint_past_waiting_messages(patch: pytest.MonkeyPatch) -> None:
    """A pack's seek position is behind its tick, though later messages stand before it."""

    def seek(self: packs.PackAssembler[Any], next_position: int) -> Checkpoint:
        return Checkpoint(self._through, next_position, self._tick, self._epoch)

    patch.setattr(packs.PackAssembler, "_seek", seek)


def epoch_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A root coordinator that starts again speaks under the epoch it had before."""

    async def same(self: RootCoord) -> int:
        return 1

    patch.setattr(RootCoord, "_next_epoch", same)


def bound_not_persisted(patch: pytest.MonkeyPatch) -> None:
    """The oracle begins where the clock is, not above what it has handed out."""
    start = tso.TimestampOracle.start

    async def forgetful(self: tso.TimestampOracle, used_until_ms: int = 0) -> None:
        class Nothing:
            async def get(self, key: str) -> None:
                return None

            txn = self._meta.txn

        self._meta = Nothing()  # type: ignore[assignment]
        await start(self)

    patch.setattr(tso.TimestampOracle, "start", forgetful)


def acknowledged_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """A write is acknowledged when the log has received it."""

    async def append(self: LogWriter, turn: Turn, messages: Any) -> None:
        entries = await self._encoded(messages)
        await turn.wait()
        kept = [asyncio.ensure_future(self._log.append(p, e)) for p, e in entries.items()]
        self.__dict__.setdefault("kept", []).extend(kept)
        await asyncio.sleep(0)
        turn.done()

    patch.setattr(LogWriter, "append", append)


def lease_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """A write is acknowledged when it is durable, whether others still count on the proxy or not."""

    async def hopeful(self: Session) -> None:
        return None

    patch.setattr(Session, "confirm", hopeful)


def finished_before_it_is_written(patch: pytest.MonkeyPatch) -> None:
    """A write counts as finished for the ticks as soon as it is on its way."""
    run = DmQueue.run

    async def early(self: DmQueue, name: str, pchannels: Any, write: Any) -> Timestamp:
        async def finished_at_once(turn: Turn) -> None:
            done = turn.done

            def forget() -> None:
                done()
                self._writes._by_pchannel.clear()

            turn.done = forget  # type: ignore[method-assign]
            await write(turn)

        return await run(self, name, pchannels, finished_at_once)

    patch.setattr(DmQueue, "run", early)
    patch.setattr(ticks.UnfinishedWrites, "remove", lambda self, ts, pchannels: None)


def guarantee_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """A read is answered as of what is served, however old that is."""

    def served(self: ReadPath, cached: Any, _: Any, patience: Any) -> Timestamp:
        return self.nodes.service_time(cached.collection_id, patience)

    patch.setattr(ReadPath, "read_timestamp", served)


def merged_blocks_lose_deletes(patch: pytest.MonkeyPatch) -> None:
    """When small blocks of a growing segment become one, the deletes in them are forgotten."""
    patch.setattr("elanus.querynode.growing._joined_deletes", lambda parts: None)


def service_time_ahead(patch: pytest.MonkeyPatch) -> None:
    """A query node says that it has come half a second further than it has."""
    init = ServiceClock.__init__

    def ahead(self: ServiceClock, now: Any, watch: Any) -> None:
        init(self, lambda: Timestamp(now() + (500 << LOGICAL_BITS)), watch)

    patch.setattr(ServiceClock, "__init__", ahead)


def timestamp_given_twice(patch: pytest.MonkeyPatch) -> None:
    """Of two who ask the oracle in one millisecond, the second gets what the first got."""
    allocate = tso.TimestampOracle.allocate

    def twice(self: tso.TimestampOracle, count: int = 1) -> Timestamp:
        ts = allocate(self, count)
        last = self.__dict__.setdefault("last", ts)
        if ts >> LOGICAL_BITS == last >> LOGICAL_BITS:
            return last
        self.__dict__["last"] = ts
        return ts

    patch.setattr(tso.TimestampOracle, "allocate", twice)


def pin_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A read that is pinned to a moment is answered as of now."""
    read_timestamp = ReadPath.read_timestamp

    def unpinned(self: ReadPath, cached: Any, consistency: Any, timeout_s: Any) -> Timestamp:
        return read_timestamp(self, cached, replace(consistency, pinned=False), timeout_s)

    patch.setattr(ReadPath, "read_timestamp", unpinned)


def deleted_is_deleted_at_any_time(patch: pytest.MonkeyPatch) -> None:
    """Reads of the past do not see rows that were deleted since."""
    from elanus.querynode import visibility as visible

    see = visible.visible

    def gone(row_ts: Any, deleted_ts: Any, read_ts: Timestamp) -> Any:
        return see(row_ts, deleted_ts, read_ts) & (
            True if deleted_ts is None else deleted_ts == MAX_TIMESTAMP
        )

    patch.setattr(visible, "visible", gone)


def values_of_the_neighbor(patch: pytest.MonkeyPatch) -> None:
    """Each row of a sealed segment is answered with the value of the next one."""
    from elanus.querynode.block import Block

    take = Block.take

    def shifted(self: Block, name: str, rows: Any) -> Any:
        return take(self, name, (rows + 1) % self.rows if name == "value" else rows)

    patch.setattr(Block, "take", shifted)


def flushing_segments_reopened(patch: pytest.MonkeyPatch) -> None:
    """When a data node is lost, what it was flushing takes rows again."""

    given_up = Flushing.given_up

    def reopened(self: Flushing, vchannels: Set[str]) -> list[SegmentInfo]:
        return [replace(s, state=SegmentState.GROWING) for s in given_up(self, vchannels)]

    patch.setattr(Flushing, "given_up", reopened)


def allocations_not_counted(patch: pytest.MonkeyPatch) -> None:
    """The rows that a segment has promised already do not make it fuller."""
    patch.setattr(
        SegmentAllocator, "_open", lambda self, info: OpenSegment(info.segment_id, info.max_rows - info.rows)
    )


def checkpoint_committed_unsynced(patch: pytest.MonkeyPatch) -> None:
    """A commit trusts that the log has kept what the data node has read."""
    commit, move = Commits.commit, Checkpoints.move_checkpoints

    class Trusting:
        async def sync(self, pchannel: str) -> None:
            return None

    async def unsynced(self: Commits, range_: Any) -> None:
        self._log = Trusting()  # type: ignore[assignment]
        await commit(self, range_)

    async def moved_unsynced(self: Checkpoints, moves: Any) -> dict[str, str]:
        self._log = Trusting()  # type: ignore[assignment]
        return await move(self, moves)

    patch.setattr(Commits, "commit", unsynced)
    patch.setattr(Checkpoints, "move_checkpoints", moved_unsynced)


def notices_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """A loaded collection is not looked at again: no handoff comes."""
    from elanus.querycoord.loader import CollectionLoader

    patch.setattr(CollectionLoader, "wake", lambda self: None)


def early_tick_not_guarded(patch: pytest.MonkeyPatch) -> None:
    """A read asks for a tick in the background, and nobody handles that rootcoord is down."""

    async def unguarded(self: TimeTicker, pchannels: Any, at_least: Timestamp) -> None:
        await self._root.tick_now(pchannels, at_least)

    patch.setattr(TimeTicker, "_request", unguarded)


_TWICE = frozenset({"SEG1", "CKPT1", "CKPT2", "VIS2", "SEG2", "LIVE1"})
_PARTS = (
    garbage,
    compaction,
    deletes,
    names,
    ownership,
    reading,
    upserts,
    expiry,
    imports,
    partitions,
    slowness,
    clones,
    clusters,
    indexes,
    fields,
    loads,
)
BUGS = (
    Bug("tick one too high", tick_one_too_high, frozenset({"TT2"})),
    Bug("unfinished writes forgotten", unfinished_writes_forgotten, frozenset({"TT2"})),
    Bug("one proxy is enough", one_proxy_is_enough, frozenset({"TT2"})),
    Bug("late rule dropped", late_rule_dropped, frozenset({"VIS1", "VIS2", "DEL1", "SEG1"}), first_seed=29),
    Bug("range committed twice", range_committed_twice, _TWICE, first_seed=27),
    Bug("switched before the load", switched_before_the_load, frozenset({"VIS1"})),
    Bug("growing copy kept", growing_copy_kept, frozenset({"VIS2"})),
    Bug("deletes forgotten on handoff", deletes_forgotten_on_handoff, frozenset({"DEL1", "VIS2", "VIS4"})),
    Bug("delta logs not read", delta_logs_not_read, frozenset({"DEL1", "VIS2"})),
    Bug("delete concerns its own upsert", delete_concerns_its_own_upsert, frozenset({"DEL2", "VIS1"})),
    Bug("allocations kept on flush", allocations_kept, frozenset({"SEG3", "LIVE1", "SEG1", "VIS1", "VIS4"})),
    Bug(
        "checkpoint past waiting messages",
        checkpoint_past_waiting_messages,
        frozenset({"VIS1", "VIS2", "DEL1", "SEG1"}),
    ),
    Bug("epoch forgotten", epoch_forgotten, frozenset({"TT1"})),
    Bug(
        "bound not persisted",
        bound_not_persisted,
        frozenset({"TT4", "TT1", "TT2", "TT3", "CON1"}),
        first_seed=21,
    ),
    Bug("acknowledged before durable", acknowledged_before_it_is_durable, frozenset({"DUR1", "TT2"})),
    Bug(
        "lease not looked at after the append", lease_not_looked_at, frozenset({"DUR1", "TT2"}), first_seed=4
    ),
    Bug("finished before written", finished_before_it_is_written, frozenset({"TT2"}), first_seed=2),
    Bug("guarantee not waited for", guarantee_not_waited_for, frozenset({"CON1"})),
    Bug("merged blocks lose deletes", merged_blocks_lose_deletes, frozenset({"DEL1", "VIS2"})),
    Bug("service time ahead", service_time_ahead, frozenset({"TT3"})),
    Bug("timestamp given twice", timestamp_given_twice, frozenset({"TT4"})),
    Bug("pin forgotten", pin_forgotten, frozenset({"VIS3"})),
    Bug("deleted is deleted at any time", deleted_is_deleted_at_any_time, frozenset({"VIS1", "VIS3"})),
    Bug("values of the neighbor", values_of_the_neighbor, frozenset({"VIS4"})),
    Bug("flushing segments reopened", flushing_segments_reopened, frozenset({"SEG2"})),
    Bug("allocations not counted", allocations_not_counted, frozenset({"SEG4"}), first_seed=15),
    Bug("checkpoint committed unsynced", checkpoint_committed_unsynced, frozenset({"CKPT2"})),
    Bug("notices not waited for", notices_not_waited_for, frozenset({"LIVE1"})),
    Bug("early tick not guarded", early_tick_not_guarded, frozenset({"LIVE2"}), first_seed=21),
    *(Bug(*bug) for part in _PARTS for bug in part.BUGS),
)


@dataclass(frozen=True, slots=True)
class Hunt:
    """The result of a hunt: the invariant it was found under ("" if none), and what else was found before."""

    broken: str
    has_a_story: bool
    others: tuple[str, ...]


def hunt(name: str) -> Hunt:
    """Plant the bug of that name and run seeds until one finds it."""
    (bug,) = (bug for bug in BUGS if bug.name == name)
    others: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        bug.plant(patch)
        for seed in range(bug.first_seed, bug.first_seed + bug.seeds):
            outcome = run(draw(seed, PROFILES.get(name, OLDER)))
            if outcome.broken in bug.found_as:
                return Hunt(outcome.broken, bool(outcome.story), tuple(others))
            others.append(outcome.broken)
    return Hunt("", False, tuple(others))


def table() -> str:
    """The table of the reliability page."""
    rows = [f"| {bug.name} | {', '.join(sorted(bug.found_as))} |" for bug in BUGS]
    return "\n".join(["| bug | found as |", "|---|---|", *rows, ""])


if __name__ == "__main__":
    page = Path(__file__).parents[3] / "docs" / "reliability.md"
    before, _, rest = page.read_text().partition("| bug | found as |")
    _, blank, after = rest.partition("\n\n")
    page.write_text(before + table() + blank[1:] + after)
