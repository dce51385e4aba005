"""Garbage collection, as coordinated by datacoord: this module decides what may be deleted, jobs delete it.

A round reads the metadata at one moment, asks indexcoord which index files and querycoord which segments are
in use, derives rules from that (`elanus.core.gc`), and has every prefix of the object store swept by them.
When all prefixes are swept, the round updates the records: a dropped segment's record loses its manifest and
is small from then on, and it is removed after `record_retention_s`. A round that dies half-way records
nothing; the next round sweeps what is left. One round runs at a time. Garbage that a round finds stays
garbage, so a sweep that was given up but still runs on a data node does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from elanus.api.gc import Finding, GcReport, GcState, GcStatus, SweepOrder, SweepOutcome
from elanus.api.indexcoord import IndexCoordApi
from elanus.api.querycoord import QueryCoordApi
from elanus.core.errors import ElanusError, Unavailable
from elanus.core.gc import GcPolicy, SweepRules, keeps_files, may_forget
from elanus.core.ids import SegmentID
from elanus.core.imports import oldest_attempt
from elanus.core.offload import Offload
from elanus.core.path_digests import PathDigests
from elanus.core.segments import SegmentInfo
from elanus.core.timestamps import Timestamp
from elanus.datacoord.context import DataContext
from elanus.datacoord.datanodes import DataNodes
from elanus.datacoord.pins import Pins
from elanus.datacoord.records import in_batches
from elanus.datacoord.references import Moment, References, held_files
from elanus.datacoord.vchannel_table import Vchannel
from elanus.meta.turns import in_turns

_RETRY_S = 30.0
_REPLACED_GRACE_S = 3.0
_SWEEP_TRIES_MAX = 8
_SWEEP_PAUSE_S = 1.0
_log = structlog.get_logger("datacoord")


@dataclass(frozen=True, slots=True)
class GcSchedule:
    """When rounds run. ``settle_s``: how long after this role's start nothing is collected. By then the
    metadata updates that its predecessor had in flight have ended."""

    policy: GcPolicy
    enabled: bool
    interval_s: float
    settle_s: float


@dataclass(frozen=True, slots=True)
class GcPorts:
    """The roles that the collector calls in addition to data nodes, and where files are read.

    ``offload``: small files. ``offload_deltas``: many delta logs at once, which takes long.
    """

    index: IndexCoordApi
    query: QueryCoordApi
    offload: Offload
    offload_deltas: Offload


class Collector:
    """Implements `elanus.api.gc.GcCalls`. ``pins``: what readers outside the system hold. ``nodes``: the
    data nodes, which carry out sweeps. The facts that decide about objects are read under the role's lock, as
    of one moment."""

    def __init__(
        self,
        context: DataContext,
        nodes: DataNodes,
        pins: Pins,
        ports: GcPorts,
        schedule: GcSchedule,
    ) -> None:
        self._state = context.state
        self._attempts = context.attempts
        self._lock = context.lock
        self._rootcoord = context.rootcoord
        self._clock = context.clock
        self._nodes = nodes
        self._pins = pins
        self._ports = ports
        self._schedule = schedule
        self._references = References(context.manifests, ports.offload)
        self._started_s = context.clock.monotonic_s()
        self._call: asyncio.Task[SweepOutcome] | None = None
        self._call_epoch = 0
        self._wanted: bool | None = None
        self._wake = asyncio.Event()
        self._stage = GcState.IDLE
        self._swept: tuple[str, ...] = ()
        self._rounds = 0
        self._reclaimed_bytes = 0
        self._last: GcReport | None = None

    # calls

    def node_registered(self) -> None:
        """Do nothing: a sweep without a data node retries by itself."""

    def node_ended(self, epoch: int) -> None:
        """Cancel the sweep that runs on the node after a grace period. A sweep that finishes within the grace
        period still counts, but a process that is gone is not waited for forever."""
        if self._call is not None and self._call_epoch == epoch:
            asyncio.get_running_loop().call_later(_REPLACED_GRACE_S, self._call.cancel)

    async def collect_garbage(self, delete: bool) -> None:
        """Request a round as soon as possible. Without ``delete`` it only reports what would be deleted."""
        self._wanted = bool(self._wanted) or delete
        self._wake.set()

    async def gc_status(self) -> GcStatus:
        waiting_bytes = self._state.dropped_bytes()
        return GcStatus(
            self._stage, self._swept, self._rounds, waiting_bytes, self._reclaimed_bytes, self._last
        )

    # rounds

    async def run(self) -> None:
        """Run rounds until cancelled."""
        pause_s = self._schedule.interval_s
        while True:
            wanted = await self._next(pause_s)
            if wanted is None and not self._schedule.enabled:
                continue
            report = await self._round(wanted)
            pause_s = self._schedule.interval_s
            if report.error and wanted is None:
                pause_s = min(_RETRY_S, pause_s)

    async def _next(self, pause_s: float) -> bool | None:
        """Wait until a round is due. Return whether a requested round is to delete; None for a round that is
        due by the interval."""
        try:
            async with asyncio.timeout(pause_s):
                await self._wake.wait()
        except TimeoutError:
            return None
        self._wake.clear()
        wanted, self._wanted = self._wanted, None
        return wanted

    async def _round(self, wanted: bool | None) -> GcReport:
        cause = "interval" if wanted is None else "elanus gc" if wanted else "elanus gc --dry-run"
        delete = wanted is not False
        began_ms, began_s = self._clock.wall_ms(), self._clock.monotonic_s()
        report = GcReport(began_ms, 0, delete, cause, (), (), 0, 0)
        try:
            report = await self._collect(report)
        except ElanusError as error:
            _log.warning("garbage collection interrupted; continues in the next round", error=error.message)
            report = replace(report, error=error.message)
        except Exception as error:  # noqa: BLE001 - without another round nothing is ever reclaimed
            _log.exception("garbage collection failed; trying again")
            report = replace(report, error=f"{type(error).__name__}: {error}")
        finally:
            self._stage, self._swept = GcState.IDLE, ()
        if report.segments_reclaimed or report.records_forgotten or report.reclaimed_bytes:
            _log.info(
                "garbage collected",
                cause=cause,
                bytes=report.reclaimed_bytes,
                segments=report.segments_reclaimed,
                records=report.records_forgotten,
            )
        self._rounds += 1
        self._reclaimed_bytes += report.reclaimed_bytes
        self._last = replace(report, took_ms=int((self._clock.monotonic_s() - began_s) * 1000))
        return self._last

    async def _collect(self, report: GcReport) -> GcReport:
        self._stage = GcState.LOOKING
        await self._settled()
        policy = self._schedule.policy
        # Before the metadata: what a pin keeps for a clone that is made meanwhile is named by one or the
        # other.
        pinned = await self._pins.pinned_files()
        moment = await self._moment()
        # Read after the metadata: a segment that was dropped by then can no longer be loaded or pinned.
        pinned |= await self._pins.pinned_files()
        served = frozenset(await self._ports.query.held_segments())
        pins_ended = self._pins.ended()
        index = await self._ports.index.index_references()
        # Read after the references: a build that is no longer in use by then joins no further pin.
        pinned |= await self._pins.pinned_files()
        if self._pins.ended() != pins_ended:  # what one kept for a clone's index is in use there by now
            in_use = (await self._ports.index.index_references()).files
            pinned |= await self._ports.offload(PathDigests.of, in_use)
        of_pins = await self._pins.pinned_segments()
        reclaimed = await moment.reclaimable(policy, served | of_pins)
        rules = await self._references.rules(moment, index, policy, reclaimed, pinned)
        kept = held_files(moment, self._state.pins())
        waiting = await moment.pinned(policy, reclaimed, served, of_pins, self._state.pins())
        report = replace(report, pinned=waiting, held=kept)
        self._stage = GcState.SWEEPING
        findings: list[Finding] = []
        for prefix, prefix_rules in rules.items():
            outcome = await self._sweep(prefix, prefix_rules, report)
            findings += outcome.findings
            self._swept = (*self._swept, prefix)
        report = replace(report, findings=tuple(findings))
        if not report.deleted:
            return report
        self._stage = GcState.RECORDING
        await self._record(reclaimed, moment.ended_vchannels(policy))
        forgotten = await self._forget(served)
        return replace(report, segments_reclaimed=len(reclaimed), records_forgotten=forgotten)

    async def _settled(self) -> None:
        left_s = self._started_s + self._schedule.settle_s - self._clock.monotonic_s()
        if left_s > 0:
            await asyncio.sleep(left_s)

    async def _moment(self) -> Moment:
        async with self._lock:
            fresh = await self._rootcoord.alloc_ids(1)
            now = await self._rootcoord.alloc_timestamp(1)
            return Moment(
                now,
                self._clock.wall_ms(),
                oldest_attempt(self._state.imports(), none=self._attempts.closed_below(fresh)),
                tuple(self._state.segments()),
                tuple(self._state.vchannels()),
                tuple(self._state.dropped_vchannels()),
            )

    async def _sweep(self, prefix: str, rules: SweepRules, report: GcReport) -> SweepOutcome:
        """Sweep one prefix. When the data node is lost meanwhile, another one, or the same one again, is
        asked: the rules stay valid."""
        for _ in range(_SWEEP_TRIES_MAX - 1):
            try:
                return await self._try_to_sweep(prefix, rules, report)
            except Unavailable as error:
                _log.info("sweep interrupted; trying again", prefix=prefix, error=error.message)
                await asyncio.sleep(_SWEEP_PAUSE_S)
        return await self._try_to_sweep(prefix, rules, report)

    async def _try_to_sweep(self, prefix: str, rules: SweepRules, report: GcReport) -> SweepOutcome:
        nodes = self._nodes.by_load()
        if not nodes:
            raise Unavailable("no data node is registered: nothing can be swept until the pipeline is up")
        order = SweepOrder(prefix, rules, report.deleted)
        work: Coroutine[Any, Any, SweepOutcome] = nodes[0].ports.sweeps.sweep(order, report.cause)
        call = self._call = asyncio.ensure_future(work)
        self._call_epoch = nodes[0].epoch
        try:
            return await call
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if this is not None and this.cancelling():
                call.cancel()
                raise
            raise Unavailable(f"the data node that swept {prefix} is gone") from None
        finally:
            self._call = None

    # records

    async def _record(self, reclaimed: Sequence[SegmentInfo], ended: Sequence[Vchannel]) -> None:
        """Clear the references to deleted files: the records no longer need them, and become small."""
        for some in in_batches(reclaimed):
            async with self._lock:
                known = (self._state.find_segment(s.segment_id) for s in some)
                cleared = [
                    replace(s, manifest="", size_bytes=0) for s in known if s is not None and keeps_files(s)
                ]
                await self._state.put(cleared)
        for vchannels in in_batches([v for v in ended if v.deltas]):
            async with self._lock:
                await self._state.put(vchannels=[replace(v, deltas="") for v in vchannels])

    async def _forget(self, held: frozenset[SegmentID]) -> int:
        """Remove the records that are no longer needed and return the number of segments removed.

        A query node may serve a segment long after compactions of its outputs: the records between it and
        what holds its rows now say that these rows still exist. The lock is released between batches. A
        record that may be forgotten does not change any more.
        """
        now = await self._rootcoord.alloc_timestamp(1)
        needed = self._state.descendants(held)
        dropped = in_turns(self._state.dropped_segments())
        old = [s.segment_id async for s in dropped if s.segment_id not in needed and self._may_forget(s, now)]
        for segment_ids in in_batches(old):
            async with self._lock:
                await self._state.forget(segment_ids, ())
        vchannels = [
            v.vchannel
            for v in self._state.dropped_vchannels()
            if not v.deltas and not self._state.segments_on(v.vchannel)
        ]
        for names in in_batches(vchannels):
            async with self._lock:
                await self._state.forget((), names)
        return len(old)

    def _may_forget(self, info: SegmentInfo, now: Timestamp) -> bool:
        vchannel = self._state.vchannel(info.vchannel)
        checkpoint_ts = None if vchannel is None or vchannel.dropped else vchannel.checkpoint.ts
        return may_forget(info, checkpoint_ts, now, self._schedule.policy)
