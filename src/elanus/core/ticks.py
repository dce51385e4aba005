"""Time tick rules: the proxies' side and the root coordinator's side, as pure decisions.

A proxy reports, per pchannel, a timestamp up to which all its writes are finished: strictly below its
oldest unfinished one (`tick_report`). Such a report stays true forever, because a later write gets a
later timestamp. So the root coordinator keeps each proxy's last report and may at any moment write the
minimum over them as a tick (`TickBarrier`). Its own DDL takes part in the same way as a proxy's writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from elanus.core.ids import NodeID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, before, physical_ms

NO_NODE = NodeID(0)


class UnfinishedWrites:
    """Timestamps of the writes that a proxy has begun but not finished, by pchannel.

    The caller must add a write before its timestamp is allocated, under a value that is not larger than it.
    Several writes may wait for their timestamps under the same value.
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
        """Return the oldest unfinished write of each pchannel that has one."""
        return {pchannel: min(pending) for pchannel, pending in self._by_pchannel.items()}


def tick_report(now: Timestamp, oldest: Mapping[str, Timestamp]) -> tuple[Timestamp, dict[str, Timestamp]]:
    """Return what a proxy may report: the default, and the pchannels that must stay below it.

    ``now`` must have been allocated before ``oldest`` was read: every write that is missing from
    ``oldest`` and not finished was stamped later than ``now``.
    """
    return now, {pchannel: min(now, before(ts)) for pchannel, ts in oldest.items()}


class WrittenLately:
    """The pchannels that a proxy has written to within the last ``linger_ms``.

    They are ticked with every report. The other pchannels are idle: a reader that waits for a tick there
    requests it, so ticks are written only occasionally.
    """

    def __init__(self, linger_ms: int) -> None:
        self._linger_ms = linger_ms
        self._noted: set[str] = set()
        self._written: dict[str, Timestamp] = {}

    def note(self, pchannels: Iterable[str]) -> None:
        """Record that a write to these pchannels begins or ends."""
        self._noted.update(pchannels)

    def at(self, now: Timestamp) -> tuple[str, ...]:
        """Return the pchannels to include in a report made at ``now``."""
        self._written |= dict.fromkeys(self._noted, now)
        self._noted.clear()
        oldest_ms = physical_ms(now) - self._linger_ms
        self._written = {p: ts for p, ts in self._written.items() if physical_ms(ts) >= oldest_ms}
        return tuple(sorted(self._written))


class TickBarrier:
    """The root coordinator's view of all sources of writes, and the ticks that follow from it."""

    def __init__(self) -> None:
        self._reports: dict[NodeID, tuple[Timestamp, Mapping[str, Timestamp]] | None] = {}
        self._ddl: dict[Timestamp, frozenset[str]] = {}
        self._ticks: dict[str, Timestamp] = {}

    def join(self, node_id: NodeID) -> None:
        """Add a source: no tick is written until its first report. Joining again forgets the last report."""
        self._reports[node_id] = None

    def leave(self, node_id: NodeID) -> None:
        self._reports.pop(node_id, None)

    def has_reported(self, node_id: NodeID) -> bool:
        """Whether this source has sent a report since it joined."""
        return self._reports.get(node_id) is not None

    def report(self, node_id: NodeID, default: Timestamp, channels: Mapping[str, Timestamp]) -> bool:
        """Take a report; False if the source is unknown: its lease has ended and it must join again."""
        if node_id not in self._reports:
            return False
        known = self._reports[node_id]
        if known is None or default >= known[0]:
            self._reports[node_id] = (default, channels)
        return True

    def keeps_back(self, node_id: NodeID, pchannels: Iterable[str], at_least: Timestamp) -> bool:
        """Whether the source, judging by its last report, keeps a tick of these below ``at_least``."""
        report = self._reports.get(node_id)
        if report is None:
            return True
        default, channels = report
        return any(channels.get(pchannel, default) < at_least for pchannel in pchannels)

    def begin_ddl(self, ts: Timestamp, pchannels: Iterable[str]) -> None:
        """Keep the ticks of these below ``ts``: a definition is being written there. The others go on."""
        self._ddl[ts] = frozenset(pchannels)

    def end_ddl(self, ts: Timestamp) -> frozenset[str]:
        """Return the pchannels whose ticks are no longer kept below ``ts``."""
        return self._ddl.pop(ts, frozenset())

    def _definitions(self, pchannel: str) -> Iterator[Timestamp]:
        return (before(ts) for ts, pchannels in self._ddl.items() if pchannel in pchannels)

    def passable(self, pchannel: str) -> Timestamp:
        """Return the largest tick that may be written to the pchannel now.

        0 while some source has not reported, and while there is no source: only a report proves that the
        writes of a former source are finished.
        """
        if not self._reports:
            return NO_TIMESTAMP
        bounds = list(self._definitions(pchannel))
        for report in self._reports.values():
            if report is None:
                return NO_TIMESTAMP
            default, channels = report
            bounds.append(channels.get(pchannel, default))
        return min(bounds)

    def holder(self, pchannel: str) -> NodeID:
        """Return the source whose report bounds the next tick of the pchannel, or that has not reported.

        `NO_NODE` if a definition of the root coordinator bounds it, or there is no source.
        """
        holder, lowest = NO_NODE, min(self._definitions(pchannel), default=None)
        for node_id, report in self._reports.items():
            if report is None:
                return node_id
            default, channels = report
            bound = channels.get(pchannel, default)
            if lowest is None or bound < lowest:
                holder, lowest = node_id, bound
        return holder

    def advance(self, pchannels: Iterable[str]) -> dict[str, Timestamp]:
        """Return the ticks to write now, only those that advance a pchannel. They count as written, until
        `not_written`."""
        forward = {}
        for pchannel in pchannels:
            tick = self.passable(pchannel)
            if tick > self.tick(pchannel):
                self._ticks[pchannel] = forward[pchannel] = tick
        return forward

    def not_written(self, pchannel: str, last: Timestamp) -> None:
        """Note that the pchannel's latest tick did not get into the log: the last one there is ``last``."""
        self._ticks[pchannel] = last

    def behind_ms(self, pchannel: str) -> int:
        """Return by how many ms the largest tick that may be written now exceeds the pchannel's last tick."""
        return physical_ms(self.passable(pchannel)) - physical_ms(self.tick(pchannel))

    def tick(self, pchannel: str) -> Timestamp:
        """Return the last tick of the pchannel; 0 before its first."""
        return self._ticks.get(pchannel, NO_TIMESTAMP)
