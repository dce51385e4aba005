"""Time synchronization: reports in, ticks out.

Every source of writes reports how far it has come; the minimum is written into each pchannel in use.
The rules are in `elanus.core.ticks`; the waiting and the writing are here. A reader that wants to see the
newest writes does not wait for the next interval: it requests a tick (`tick_now`), and all requests made at
the same time share one round of reports.

A pchannel that nobody writes to is ticked less often, so that idle data costs little: each tick
is a message that every query node and data node of the pchannel reads.

Pchannels are independent: one tick of each at most is on its way to the log, and one that takes long delays
no tick of another. A pchannel that takes no entry at the start, or whose log was put back to an older copy,
is *refused*: left out of the ticks, and tried again from time to time, while the others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

import structlog

from elanus.api.proxy import ProxyApi
from elanus.api.rootcoord import TickReport
from elanus.core.errors import ChannelRewound, ElanusError, Unavailable
from elanus.core.ids import NodeID
from elanus.core.messages import MsgKind
from elanus.core.nodes import Nodes
from elanus.core.rate_shares import RateShares
from elanus.core.ticks import TickBarrier
from elanus.core.timestamps import Timestamp
from elanus.log.port import EntryHeader, FencingLog, Log, NewEntry
from elanus.meta.tasks import cancel_and_wait
from elanus.rootcoord.tick_requests import TickRequests

_ROUND_INTERVAL_S = 0.002
"""The minimum interval between the starts of two rounds of reports, however many are requested."""
_ROUND_PAUSE_S = 0.002
_ROUND_PAUSE_MAX_S = 0.05
"""The pause between two rounds of reports while an older write keeps the tick back: doubled each time, up to
the maximum."""
_REPORT_PATIENCE_S = 1.0
"""How long a round waits for a proxy. One that is slower reports by itself, or leaves."""
_APPEND_PATIENCE_S = 0.05
"""How long new ticks are waited for. Longer than an append usually takes; a slower one ends by itself."""
_RESUME_PATIENCE_S = 3.0
"""How long pchannels are waited for at the start. A slower one is used as soon as it takes an entry."""

_log = structlog.get_logger("rootcoord")


class TimeSync:
    """``proxies``: each one takes part, from its first report until it is gone.
    ``stamp`` allocates a timestamp. ``idle_tick_ms``: how far the tick of a pchannel without writes may be
    behind before the next one is written."""

    def __init__(
        self,
        log: Log,
        proxies: Nodes[ProxyApi],
        stamp: Callable[[], Timestamp],
        *,
        idle_tick_ms: int = 0,
    ) -> None:
        self._idle_tick_ms = idle_tick_ms
        self._awake: set[str] = set()
        """The pchannels with writes or definitions that a tick has to pass."""
        self._log = log
        self._stamp = stamp
        self._epoch = 0
        self._barrier = TickBarrier()
        self._proxies = proxies
        self._joined: set[NodeID] = set()
        self._end_following: Callable[[], None] = lambda: None
        self._marked: set[str] = set()
        self._in_use: set[str] = set()
        self._refused: dict[str, ElanusError] = {}
        """By pchannel that is not in use: why it takes no entry."""
        self._failing: dict[str, ElanusError] = {}
        """By pchannel in use: why its last tick was not written."""
        self._shares = RateShares()
        self._requests = TickRequests()
        self._requested = asyncio.Event()
        self._rounds: asyncio.Task[None] | None = None
        self._round_began_s = float("-inf")
        self._appending: dict[str, asyncio.Task[None]] = {}
        """By pchannel: the append that is under way."""
        self._missed: set[str] = set()
        """The pchannels whose next tick was asked for meanwhile."""
        self._departures = 1  # those before the start
        self._fenced: dict[str, int] = {}
        """By pchannel: as of how many departures of proxies its log refuses those that are gone."""

    def start(self, epoch: int) -> None:
        """``epoch`` is this root coordinator's: readers ignore ticks of older epochs that come after it."""
        self._epoch = epoch

    def follow(self) -> None:
        """From now on the sources of writes are the live proxies.

        Proxies that exist already may have reported to a previous root coordinator, and may be writing:
        no tick passes until each has reported. A proxy that joins later writes nothing before its first
        report is accepted here; it is a source from then on, and delays nobody before. A proxy whose lease
        has expired is no source: it must not acknowledge what it still writes, and ticks go on without it.
        """
        for node_id in self._proxies:
            self._join(node_id)
        self._end_following = self._proxies.on_change(self._leave_lost)

    def _join(self, node_id: NodeID) -> None:
        self._barrier.join(node_id)
        self._joined.add(node_id)

    def _leave_lost(self) -> None:
        for node_id in self._joined.difference(self._proxies):
            self._departures += 1
            self._barrier.leave(node_id)
            self._shares.forget([node_id])
            self._joined.discard(node_id)

    async def stop(self) -> None:
        """Stop: no tick is written after this."""
        self._end_following()
        self._in_use.clear()  # no tick is due any more
        await cancel_and_wait(self._rounds, *self._appending.values())
        self._requests.cancel()

    @property
    def epoch(self) -> int:
        return self._epoch

    def ticks(self) -> Mapping[str, Timestamp]:
        return {pchannel: self.tick_of(pchannel) for pchannel in sorted(self._in_use.union(self._refused))}

    def refused(self) -> Mapping[str, str]:
        """Return why nothing, or not the last tick, was written to some pchannels."""
        return {pchannel: error.message for pchannel, error in (self._failing | self._refused).items()}

    def tick_holders(self) -> Mapping[str, NodeID]:
        return {pchannel: self._barrier.holder(pchannel) for pchannel in sorted(self._in_use)}

    def tick_of(self, pchannel: str) -> Timestamp:
        return self._barrier.tick(pchannel)

    async def resume(self, pchannels: Iterable[str], now: Timestamp) -> None:
        """As `use`, but a pchannel that takes no entry, or not in time, does not keep the others back."""
        begun = {p: self._begin(p, self._resume(p, now)) for p in dict.fromkeys(pchannels)}
        if not begun:
            return
        done, _ = await asyncio.wait(begun.values(), timeout=_RESUME_PATIENCE_S)
        for task in done:
            task.result()
        for pchannel, task in begun.items():
            if task not in done:
                text = (
                    f"the log of {pchannel} has not taken an entry within {_RESUME_PATIENCE_S:g} s; see that "
                    "its servers run and have space. The channel is used again as soon as it takes one"
                )
                self._refuse(pchannel, Unavailable(text))

    async def _resume(self, pchannel: str, now: Timestamp) -> None:
        try:
            await self.use([pchannel], now)
        except ElanusError as error:
            self._refuse(pchannel, error)
        finally:
            del self._appending[pchannel]

    async def retry_refused(self, now: Timestamp) -> None:
        """Use the refused pchannels that take entries again."""
        await self.resume([p for p in self._refused if p not in self._appending], now)

    def _begin(self, pchannel: str, append: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin an append, which removes itself from ``_appending``. None is under way in this pchannel."""
        task = self._appending[pchannel] = asyncio.create_task(append, name=f"append to {pchannel}")
        return task

    def _refuse(self, pchannel: str, error: ElanusError) -> None:
        known = self._refused.get(pchannel)
        if known is None or known.message != error.message:
            _log.error("pchannel refused", pchannel=pchannel, error=error.message)
        self._refused[pchannel] = error
        self._failing.pop(pchannel, None)
        self._in_use.discard(pchannel)
        self._marked.discard(pchannel)
        self._requests.refuse(pchannel, _again(error))

    async def use(self, pchannels: Iterable[str], now: Timestamp) -> None:
        """Tick these pchannels from now on. The epoch is written first: before it, no report counts there.

        Raises `ChannelRewound`, and what else `Log.append` raises.
        """
        for pchannel in pchannels:
            if pchannel not in self._marked:
                header = EntryHeader(MsgKind.EPOCH, now, epoch=self._epoch)
                await self._log.append(pchannel, [NewEntry(header)])
                self._marked.add(pchannel)
            self._in_use.add(pchannel)
            if self._refused.pop(pchannel, None) is not None:
                _log.info("pchannel used again", pchannel=pchannel)

    def unuse(self, pchannels: Iterable[str]) -> None:
        for pchannel in pchannels:
            self._fenced.pop(pchannel, None)
            self._in_use.discard(pchannel)
            self._refused.pop(pchannel, None)
            self._failing.pop(pchannel, None)

    def begin_ddl(self, ts: Timestamp, pchannels: Iterable[str]) -> None:
        self._barrier.begin_ddl(ts, pchannels)

    def end_ddl(self, ts: Timestamp) -> None:
        self._awake |= self._in_use & self._barrier.end_ddl(ts)

    def has_reported(self, node_id: NodeID) -> bool:
        return self._barrier.has_reported(node_id)

    def take(self, report: TickReport) -> bool:
        """Accept a report. False: the source is not (or no longer) known."""
        if report.node_id in self._proxies and report.node_id not in self._joined:
            self._join(report.node_id)
        self._awake.update(report.written, report.channels)
        return self._barrier.report(report.node_id, report.default_ts, report.channels)

    def shares(self, report: TickReport) -> Mapping[str, float]:
        """Return the proxy's shares of rates, by the demand in all proxies' last reports."""
        self._shares.report(report.node_id, report.demand)
        return self._shares.of(report.node_id, len(self._joined))

    async def write_ticks(self, pchannels: Iterable[str] | None = None) -> None:
        """Write the ticks that the reports allow, into the given pchannels or all that are due.

        Returns when they are in the log, or have failed, or take long; a pchannel with an append under way
        gets its tick later. Errors of a pchannel are raised to those who wait for its tick (`tick_now`).
        """
        wanted = self._due() if pchannels is None else self._in_use.intersection(pchannels)
        self._missed |= wanted.intersection(self._appending)
        free = sorted(wanted.difference(self._appending))
        before = {pchannel: self.tick_of(pchannel) for pchannel in free}
        ticks = self._barrier.advance(free)
        self._awake.difference_update(ticks)
        begun = [self._begin(p, self._write(p, tick, before[p])) for p, tick in ticks.items()]
        if begun:
            await asyncio.wait(begun, timeout=_APPEND_PATIENCE_S)

    def _due(self) -> set[str]:
        idle = self._in_use - self._awake
        late = {p for p in idle if self._barrier.behind_ms(p) >= self._idle_tick_ms}
        return late | (self._in_use & self._awake)

    async def _write(self, pchannel: str, tick: Timestamp, last: Timestamp) -> None:
        """``last``: the pchannel's tick before, which stays the last one if this one fails: who asks for a
        tick later must not get the answer that it is there."""
        entry = NewEntry(EntryHeader(MsgKind.TIME_TICK, tick, epoch=self._epoch))
        try:
            await self.fence([pchannel])
            await self._log.append(pchannel, [entry], durable=False)
        except ChannelRewound as error:
            self._barrier.not_written(pchannel, last)
            self._refuse(pchannel, error)
        except ElanusError as error:
            self._barrier.not_written(pchannel, last)
            self._fail(pchannel, error)
            self._requests.refuse(pchannel, _again(error))
        except Exception as error:  # noqa: BLE001 - those who wait for the pchannel get it
            self._barrier.not_written(pchannel, last)
            _log.exception("tick not written", pchannel=pchannel)
            self._requests.refuse(pchannel, error)
        else:
            if self._failing.pop(pchannel, None) is not None:
                _log.info("ticks written again", pchannel=pchannel)
            self._requests.ticked({pchannel: tick})
        finally:
            del self._appending[pchannel]
        if pchannel in self._missed:
            self._missed.discard(pchannel)
            self._requested.set()  # the next round follows at once

    async def fence(self, pchannels: Iterable[str]) -> None:
        """Before a tick or a seal that no longer waits for a proxy that is gone: have the log refuse its
        entries.

        The proxy may not know yet that its session has ended, and acknowledge what comes after the tick, or
        write to a segment that is sealed. Raises what `FencingLog.fence` raises.
        """
        if not isinstance(self._log, FencingLog):
            return
        for pchannel in pchannels:
            departures = self._departures
            if self._fenced.get(pchannel) != departures:
                await self._log.fence(pchannel, lambda n: n not in self._joined and n not in self._proxies)
                self._fenced[pchannel] = departures

    def _fail(self, pchannel: str, error: ElanusError) -> None:
        if pchannel not in self._failing:
            _log.warning("tick not written; trying again", pchannel=pchannel, error=error.message)
        self._failing[pchannel] = error
        self._awake.add(pchannel)

    async def tick_now(self, pchannels: Iterable[str], at_least: Timestamp) -> None:
        """Return when the ticks of those pchannels that are in use have reached ``at_least``.

        Bounded by the caller: an older unfinished write, or a proxy that does not answer, delays it. Raises
        `ChannelRewound`, `Unavailable` or `DiskFull` if one of them takes no entry.
        """
        pchannels = tuple(pchannels)
        _raise_first(self._refused, pchannels)
        in_use = self._in_use.intersection(pchannels)
        wanted = {p for p in in_use if p in self._appending or self.tick_of(p) < at_least}
        if not wanted:
            return
        request = self._requests.add(wanted, at_least)
        self._requested.set()
        if self._rounds is None or self._rounds.done():
            self._rounds = asyncio.create_task(self._run_rounds(), name="tick rounds")
        try:
            await request.done
        finally:
            self._requests.remove(request)

    def check_taken(self, pchannels: Iterable[str]) -> None:
        """Raise `ChannelRewound`, `Unavailable` or `DiskFull` if one of them takes no entry."""
        _raise_first(self._failing | self._refused, pchannels)

    async def _run_rounds(self) -> None:
        """Collect reports in rounds, all requests together, while there are requests.

        A round that was already running when a request came may have collected its reports before: the next
        one follows at once.
        """
        pause_s = _ROUND_PAUSE_S
        try:
            while not self._requests.is_fulfilled:
                self._requested.clear()
                await self._collect(self._requests.pchannels(), self._requests.latest)
                if self._requested.is_set():
                    pause_s = _ROUND_PAUSE_S
                elif not self._requests.is_fulfilled:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(pause_s):
                            await self._requested.wait()
                    pause_s = min(2 * pause_s, _ROUND_PAUSE_MAX_S)
        except Exception as error:  # noqa: BLE001 - those who wait get it
            self._requests.fail(error)

    async def _collect(self, pchannels: set[str], at_least: Timestamp) -> None:
        """One round: ask the proxies whose last report keeps a tick back."""
        now_s = asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, self._round_began_s + _ROUND_INTERVAL_S - now_s))
        self._round_began_s = asyncio.get_running_loop().time()
        now = self._stamp()
        late = [n for n in self._joined if self._barrier.keeps_back(n, pchannels, at_least)]
        await asyncio.gather(*(self._ask(self._proxies[n], now) for n in sorted(late) if n in self._proxies))
        await self.write_ticks(pchannels)

    async def _ask(self, proxy: ProxyApi, now: Timestamp) -> None:
        """Take a proxy's report. Without an answer, its last report stays in force, and no tick passes it."""
        try:
            async with asyncio.timeout(_REPORT_PATIENCE_S):
                self.take(await proxy.report_tick(now))
        except (ElanusError, TimeoutError) as error:
            _log.info("proxy report missing", error=str(error))


def _raise_first(errors: Mapping[str, ElanusError], pchannels: Iterable[str]) -> None:
    for error in map(errors.get, pchannels):
        if error is not None:
            raise _again(error)


def _again(error: ElanusError) -> ElanusError:
    """Return a new error with the text: each raise adds to a traceback."""
    return type(error)(error.message)
