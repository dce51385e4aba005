"""What a time tick may say: the proxies' side and the root coordinator's side, as plain decisions.

A proxy reports, per pchannel, a timestamp up to which all its writes are finished: strictly below its
oldest unfinished one (`tick_report`). Such a report stays true for ever, because a later write gets a
later timestamp; so the root coordinator keeps each proxy's last report and may at any moment write the
minimum over them as a tick (`TickBarrier`). Its own DDL takes part like a proxy's writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from elanus.core.ids import NodeID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, before


class UnfinishedWrites:
    """Timestamps of the writes a proxy has begun and not finished, by pchannel.

    A write is added before anybody can have its stamp, with a timestamp not above it; that is the caller's
    duty. Several writes may wait for their stamps under the same one.
    """

    def __init__(self) -> None:
        self._by_pchannel: dict[str, Counter[Timestamp]] = {}

    def add(self, ts: Timestamp, pchannels: Iterable[str]) -> None:
        for pchannel in pchannels:
            self._by_pchannel.setdefault(pchannel, Counter())[ts] += 1

    def remove(self, ts: Timestamp, pchannels: Iterable[str]) -> None:
        for pchannel in pchannels:
            pending = self._by_pchannel[pchannel]
            pending[ts] -= 1
            if not pending[ts]:
                del pending[ts]
            if not pending:
                del self._by_pchannel[pchannel]

    def oldest(self) -> Mapping[str, Timestamp]:
        """The oldest unfinished write of each pchannel that has one."""
        return {pchannel: min(pending) for pchannel, pending in self._by_pchannel.items()}


def tick_report(now: Timestamp, oldest: Mapping[str, Timestamp]) -> tuple[Timestamp, dict[str, Timestamp]]:
    """What a proxy may report: the default, and the pchannels that must stay below it.

    ``now`` must have been allocated before ``oldest`` was read: every write that is missing from
    ``oldest`` and not finished was stamped later than ``now``.
    """
    return now, {pchannel: min(now, before(ts)) for pchannel, ts in oldest.items()}


class TickBarrier:
    """The root coordinator's view of every source of writes, and the ticks that follow from it."""

    def __init__(self) -> None:
        self._reports: dict[NodeID, tuple[Timestamp, Mapping[str, Timestamp]] | None] = {}
        self._ddl: set[Timestamp] = set()
        self._ticks: dict[str, Timestamp] = {}

    def join(self, node_id: NodeID) -> None:
        """A new source: no tick passes until its first report. Joining again forgets the last report."""
        self._reports[node_id] = None

    def leave(self, node_id: NodeID) -> None:
        self._reports.pop(node_id, None)

    def has_reported(self, node_id: NodeID) -> bool:
        """Whether ticks count on this source already."""
        return self._reports.get(node_id) is not None

    def report(self, node_id: NodeID, default: Timestamp, channels: Mapping[str, Timestamp]) -> bool:
        """Take a report; False when the source is unknown: its lease is over and it must join again."""
        if node_id not in self._reports:
            return False
        known = self._reports[node_id]
        if known is None or default >= known[0]:
            self._reports[node_id] = (default, channels)
        return True

    def keeps_back(self, node_id: NodeID, pchannels: Iterable[str], at_least: Timestamp) -> bool:
        """Whether, for all that is known, the source keeps a tick of these below ``at_least``."""
        report = self._reports.get(node_id)
        if report is None:
            return True
        default, channels = report
        return any(channels.get(pchannel, default) < at_least for pchannel in pchannels)

    def begin_ddl(self, ts: Timestamp) -> None:
        self._ddl.add(ts)

    def end_ddl(self, ts: Timestamp) -> None:
        self._ddl.discard(ts)

    def passable(self, pchannel: str) -> Timestamp:
        """The largest tick the pchannel may carry now.

        0 while some source has not reported, and while there is none: only a report says that what a
        former source began is over.
        """
        if not self._reports:
            return NO_TIMESTAMP
        bounds: list[Timestamp] = [before(ts) for ts in self._ddl]
        for report in self._reports.values():
            if report is None:
                return NO_TIMESTAMP
            default, channels = report
            bounds.append(channels.get(pchannel, default))
        return min(bounds)

    def advance(self, pchannels: Iterable[str]) -> dict[str, Timestamp]:
        """The ticks to write now: only those that move a pchannel forward. They count as written."""
        forward = {}
        for pchannel in pchannels:
            tick = self.passable(pchannel)
            if tick > self.tick(pchannel):
                self._ticks[pchannel] = forward[pchannel] = tick
        return forward

    def tick(self, pchannel: str) -> Timestamp:
        """The last tick of the pchannel; 0 before its first."""
        return self._ticks.get(pchannel, NO_TIMESTAMP)
