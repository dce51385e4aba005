"""Vchannels that are to be brought into binlogs though no segment of theirs is complete.

A flush may find nothing to seal: only deletes have come, or a segment that was sealed before. What lies in
the log alone up to the flush is brought into binlogs all the same, and so is, before a compaction that a
person asks for, what that one is to fold in. Where nothing waits in the log, nothing is ordered.

In memory only. After a restart of the coordinator such writes wait for the next flush, or for their age. No
client waits for them: what it asks after a flush is whether its segments are flushed, and their seals are
written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.datacoord.state import DataState
from elanus.rpc.datacoord import DataNodeTick


class Syncs:
    def __init__(self, state: DataState) -> None:
        self._state = state
        self._wanted: dict[str, tuple[Timestamp, str]] = {}
        self._offered: dict[str, Timestamp] = {}
        """The tick at which a vchannel was first found due: what is ordered after that covers as much."""
        self._ordered: dict[str, Timestamp] = {}
        """That tick, where the data node has taken the order."""

    def want(self, vchannels: Iterable[str], ts: Timestamp, cause: str) -> None:
        """Have everything up to ``ts`` in binlogs soon; ``cause`` tells the job ledger why."""
        self._wanted = {v: wanted for v, wanted in self._wanted.items() if self._is_behind(v, wanted[0])}
        for noted in (self._offered, self._ordered):
            for vchannel in noted.keys() - self._wanted.keys():
                del noted[vchannel]
        for vchannel in vchannels:
            known, _ = self._wanted.get(vchannel, (NO_TIMESTAMP, ""))
            if known < ts and self._is_behind(vchannel, ts):
                self._wanted[vchannel] = (ts, cause)

    def is_waiting(self, vchannels: Iterable[str]) -> bool:
        """Whether something that is wanted of these is not in binlogs yet, or may not be."""
        return any(v in self._wanted and self._is_behind(v, self._wanted[v][0]) for v in vchannels)

    def due(self, ticks: Mapping[str, DataNodeTick]) -> list[str]:
        """Those to order a range of, by what their data node has reported now."""
        due = [vchannel for vchannel, tick in ticks.items() if self._is_due(tick)]
        for vchannel in due:
            self._offered.setdefault(vchannel, ticks[vchannel].ts)
        return due

    def cause(self, vchannel: str) -> str:
        """Why a range is wanted; "" where none is."""
        return self._wanted.get(vchannel, (NO_TIMESTAMP, ""))[1]

    def delivered(self, vchannel: str) -> None:
        """The data node has taken an order of the vchannel."""
        if vchannel in self._offered:
            self._ordered[vchannel] = self._offered.pop(vchannel)

    def give_up(self, vchannels: Iterable[str]) -> None:
        """These change owners: what was ordered of the former one is ordered anew."""
        for vchannel in vchannels:
            self._offered.pop(vchannel, None)
            self._ordered.pop(vchannel, None)

    def _is_due(self, tick: DataNodeTick) -> bool:
        wanted, _ = self._wanted.get(tick.vchannel, (NO_TIMESTAMP, ""))
        if wanted == NO_TIMESTAMP or tick.ts < wanted:
            return False
        if not tick.bytes or not self._is_behind(tick.vchannel, wanted):
            del self._wanted[tick.vchannel]
            return False
        return self._ordered.get(tick.vchannel, NO_TIMESTAMP) < wanted

    def _is_behind(self, name: str, ts: Timestamp) -> bool:
        vchannel = self._state.vchannel(name)
        return vchannel is not None and not vchannel.dropping and vchannel.checkpoint.ts < ts
