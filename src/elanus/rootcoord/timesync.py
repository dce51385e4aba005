"""Time synchronisation: reports in, ticks out (seed 2).

Every source of writes reports how far it has come; the minimum is written into each pchannel in use.
The rules are `elanus.core.ticks`; here are the waiting and the writing. A reader that wants to see the
newest writes does not wait for the next interval: it asks for a tick (`tick_now`), and all who ask at
the same time share one round of reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import structlog

from elanus.core.errors import ElanusError
from elanus.core.ids import NodeID
from elanus.core.messages import MsgKind
from elanus.core.nodes import Nodes
from elanus.core.ticks import TickBarrier
from elanus.core.timestamps import Timestamp
from elanus.log.port import EntryHeader, Log, NewEntry
from elanus.rpc.proxy import ProxyApi
from elanus.rpc.rootcoord import TickReport

_ROUND_INTERVAL_S = 0.002
"""Rounds of reports begin no closer together, however many ask."""
_ROUND_PAUSE_S = 0.002
_ROUND_PAUSE_MAX_S = 0.05
"""Between two rounds of reports while an older write keeps the tick back: doubled up to the latter."""
_REPORT_PATIENCE_S = 1.0
"""How long a round waits for a proxy. One that is slower reports by itself, or leaves."""

_log = structlog.get_logger("rootcoord")


class TimeSync:
    """``proxies``: every one of them takes part, from its first report until it is not there any more.
    ``stamp`` allocates a timestamp."""

    def __init__(self, log: Log, proxies: Nodes[ProxyApi], stamp: Callable[[], Timestamp]) -> None:
        self._log = log
        self._stamp = stamp
        self._epoch = 0
        self._barrier = TickBarrier()
        self._proxies = proxies
        self._joined: set[NodeID] = set()
        self._end_following: Callable[[], None] = lambda: None
        self._marked: set[str] = set()
        self._in_use: set[str] = set()
        self._round: asyncio.Task[None] | None = None
        self._round_began_s = float("-inf")
        self._writing = asyncio.Lock()

    def start(self, epoch: int) -> None:
        """``epoch`` is this root coordinator's: readers ignore ticks of older ones that come after it."""
        self._epoch = epoch

    def follow(self) -> None:
        """From now on the sources of writes are the proxies that are there.

        Those that are there already may have reported to a root coordinator before this one, and be writing:
        no tick passes until each has reported. One that comes later writes nothing before its first report
        is taken here; it is a source from then on, and holds up nobody before. One whose lease is over is
        none: what it still writes it must not acknowledge, and ticks go on without it.
        """
        for node_id in self._proxies:
            self._join(node_id)
        self._end_following = self._proxies.on_change(self._look)

    def _join(self, node_id: NodeID) -> None:
        self._barrier.join(node_id)
        self._joined.add(node_id)

    def _look(self) -> None:
        for node_id in self._joined.difference(self._proxies):
            self._barrier.leave(node_id)
            self._joined.discard(node_id)

    async def stop(self) -> None:
        """No tick is written any more."""
        self._end_following()
        if self._round is not None:
            self._round.cancel()
            await asyncio.gather(self._round, return_exceptions=True)

    @property
    def epoch(self) -> int:
        return self._epoch

    def ticks(self) -> Mapping[str, Timestamp]:
        return {pchannel: self.tick_of(pchannel) for pchannel in sorted(self._in_use)}

    def tick_of(self, pchannel: str) -> Timestamp:
        return self._barrier.tick(pchannel)

    async def use(self, pchannels: Iterable[str], now: Timestamp) -> None:
        """Tick these pchannels from now on. The epoch goes in first: before it, no report counts there."""
        for pchannel in pchannels:
            if pchannel not in self._marked:
                header = EntryHeader(MsgKind.EPOCH, now, epoch=self._epoch)
                await self._log.append(pchannel, [NewEntry(header)])
                self._marked.add(pchannel)
            self._in_use.add(pchannel)

    def unuse(self, pchannels: Iterable[str]) -> None:
        self._in_use.difference_update(pchannels)

    def begin_ddl(self, ts: Timestamp) -> None:
        self._barrier.begin_ddl(ts)

    def end_ddl(self, ts: Timestamp) -> None:
        self._barrier.end_ddl(ts)

    def has_reported(self, node_id: NodeID) -> bool:
        return self._barrier.has_reported(node_id)

    def take(self, report: TickReport) -> bool:
        """False: the source is not (or no longer) one of ours."""
        if report.node_id in self._proxies and report.node_id not in self._joined:
            self._join(report.node_id)
        return self._barrier.report(report.node_id, report.default_ts, report.channels)

    async def write_ticks(self, pchannels: Iterable[str] | None = None) -> None:
        """Write the ticks that the reports allow, into the given pchannels or all in use."""
        async with self._writing:
            wanted = self._in_use if pchannels is None else self._in_use.intersection(pchannels)
            ticks = self._barrier.advance(sorted(wanted))
            await asyncio.gather(*(self._write(pchannel, tick) for pchannel, tick in ticks.items()))

    async def _write(self, pchannel: str, tick: Timestamp) -> None:
        entry = NewEntry(EntryHeader(MsgKind.TIME_TICK, tick, epoch=self._epoch))
        await self._log.append(pchannel, [entry], durable=False)

    async def tick_now(self, pchannels: Iterable[str], at_least: Timestamp) -> None:
        """Returns when the ticks of those pchannels that are in use have reached ``at_least``.

        Bounded by the caller: an unfinished older write, or a proxy that does not answer, keeps it waiting.
        """
        wanted = self._in_use.intersection(pchannels)
        pause_s = _ROUND_PAUSE_S
        while wanted and min(self.tick_of(p) for p in wanted) < at_least:
            joined = self._round is not None and not self._round.done()
            if self._round is None or not joined:
                self._round = asyncio.create_task(self._collect(wanted, at_least), name="tick round")
            await asyncio.shield(self._round)
            await self.write_ticks(wanted)
            # A round that was under way may have had its reports before this reader came.
            if not joined and min(self.tick_of(p) for p in wanted) < at_least:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _ROUND_PAUSE_MAX_S)

    async def _collect(self, pchannels: set[str], at_least: Timestamp) -> None:
        """One round: those are asked whose last report keeps a tick back."""
        now_s = asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, self._round_began_s + _ROUND_INTERVAL_S - now_s))
        self._round_began_s = asyncio.get_running_loop().time()
        now = self._stamp()
        late = [n for n in self._joined if self._barrier.keeps_back(n, pchannels, at_least)]
        await asyncio.gather(*(self._ask(self._proxies[n], now) for n in sorted(late) if n in self._proxies))
        await self.write_ticks(pchannels)

    async def _ask(self, proxy: ProxyApi, now: Timestamp) -> None:
        """Take a proxy's report. Where no answer comes, its last one counts on, and no tick passes that."""
        try:
            async with asyncio.timeout(_REPORT_PATIENCE_S):
                self.take(await proxy.report_tick(now))
        except (ElanusError, TimeoutError) as error:
            _log.info("no report in this round", error=str(error))
