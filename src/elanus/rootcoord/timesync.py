"""Time synchronization: reports in, ticks out.

Every source of writes reports how far it has come; the minimum is written into each pchannel in use.
The rules are in `elanus.core.ticks`; the waiting and the writing are here. A reader that wants to see the
newest writes does not wait for the next interval: it requests a tick (`tick_now`), and all requests made at
the same time share one round of reports.

A pchannel that nobody writes to is ticked less often, so that idle data costs little: each tick
is a message that every query node and data node of the pchannel reads.

A pchannel whose log was put back to an older copy takes no entry. It is *refused*: left out of the ticks, and
tried again from time to time, while the others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping

import structlog

from elanus.api.proxy import ProxyApi
from elanus.api.rootcoord import TickReport
from elanus.core.errors import ChannelRewound, ElanusError
from elanus.core.ids import NodeID
from elanus.core.messages import MsgKind
from elanus.core.nodes import Nodes
from elanus.core.rate_shares import RateShares
from elanus.core.ticks import TickBarrier
from elanus.core.timestamps import Timestamp
from elanus.log.port import EntryHeader, Log, NewEntry
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
        self._refused: dict[str, ChannelRewound] = {}
        """By pchannel: why it takes no entry."""
        self._shares = RateShares()
        self._requests = TickRequests()
        self._requested = asyncio.Event()
        self._rounds: asyncio.Task[None] | None = None
        self._round_began_s = float("-inf")
        self._writing = asyncio.Lock()

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
            self._barrier.leave(node_id)
            self._shares.forget([node_id])
            self._joined.discard(node_id)

    async def stop(self) -> None:
        """Stop: no tick is written after this."""
        self._end_following()
        await cancel_and_wait(self._rounds)
        self._requests.cancel()

    @property
    def epoch(self) -> int:
        return self._epoch

    def ticks(self) -> Mapping[str, Timestamp]:
        return {pchannel: self.tick_of(pchannel) for pchannel in sorted(self._in_use.union(self._refused))}

    def refused(self) -> Mapping[str, str]:
        return {pchannel: error.message for pchannel, error in self._refused.items()}

    def tick_holders(self) -> Mapping[str, NodeID]:
        return {pchannel: self._barrier.holder(pchannel) for pchannel in sorted(self._in_use)}

    def tick_of(self, pchannel: str) -> Timestamp:
        return self._barrier.tick(pchannel)

    async def resume(self, pchannels: Iterable[str], now: Timestamp) -> None:
        """As `use`, but a pchannel that takes no entry does not keep the others back."""
        for pchannel in dict.fromkeys(pchannels):
            try:
                await self.use([pchannel], now)
            except ChannelRewound as error:
                self._refuse(pchannel, error)

    async def retry_refused(self, now: Timestamp) -> None:
        """Use the refused pchannels that take entries again."""
        await self.resume(tuple(self._refused), now)

    def _refuse(self, pchannel: str, error: ChannelRewound) -> None:
        if pchannel not in self._refused:
            _log.error("pchannel refused", pchannel=pchannel, error=error.message)
        self._refused[pchannel] = error
        self._in_use.discard(pchannel)
        self._marked.discard(pchannel)
        self._requests.refuse(pchannel, ChannelRewound(error.message))

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
            self._in_use.discard(pchannel)
            self._refused.pop(pchannel, None)

    def begin_ddl(self, ts: Timestamp) -> None:
        self._barrier.begin_ddl(ts)

    def end_ddl(self, ts: Timestamp) -> None:
        self._barrier.end_ddl(ts)
        self._awake |= self._in_use

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
        """Write the ticks that the reports allow, into the given pchannels or all that are due."""
        async with self._writing:
            wanted = self._due() if pchannels is None else self._in_use.intersection(pchannels)
            ticks = self._barrier.advance(sorted(wanted))
            self._awake.difference_update(ticks)
            await asyncio.gather(*(self._write(pchannel, tick) for pchannel, tick in ticks.items()))
            self._requests.ticked(ticks)

    def _due(self) -> set[str]:
        idle = self._in_use - self._awake
        late = {p for p in idle if self._barrier.behind_ms(p) >= self._idle_tick_ms}
        return late | (self._in_use & self._awake)

    async def _write(self, pchannel: str, tick: Timestamp) -> None:
        entry = NewEntry(EntryHeader(MsgKind.TIME_TICK, tick, epoch=self._epoch))
        try:
            await self._log.append(pchannel, [entry], durable=False)
        except ChannelRewound as error:
            self._refuse(pchannel, error)

    async def tick_now(self, pchannels: Iterable[str], at_least: Timestamp) -> None:
        """Return when the ticks of those pchannels that are in use have reached ``at_least``.

        Bounded by the caller: an older unfinished write, or a proxy that does not answer, delays it. Raises
        `ChannelRewound` if one of them takes no entry.
        """
        pchannels = tuple(pchannels)
        self.check_taken(pchannels)
        wanted = {p for p in self._in_use.intersection(pchannels) if self.tick_of(p) < at_least}
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
        """Raise `ChannelRewound` if one of them is refused."""
        for error in map(self._refused.get, pchannels):
            if error is not None:
                raise ChannelRewound(error.message)

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
                # Also the ticks that a caller wrote who was cancelled meanwhile.
                self._requests.ticked({p: self.tick_of(p) for p in self._requests.pchannels()})
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
