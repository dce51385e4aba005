"""Vchannels whose log entries are to be written to binlogs although none of their segments is complete.

A flush may find nothing to seal: only deletes have arrived, or the segment was sealed before. Entries up to
the flush that are only in the log are written to binlogs all the same. So are, before a compaction that a
client requests, the deletes that it is to fold in. If nothing is waiting in the log, nothing is ordered.

Kept in memory only. After a restart of the coordinator, such writes wait for the next flush, or for their
age. No client waits for them: after a flush a client asks whether its segments are flushed, and their seals
are persisted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from elanus.api.datacoord import DataNodeTick
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.datacoord.state import DataState


class ForcedFlushes:
    def __init__(self, state: DataState) -> None:
        self._state = state
        self._wanted: dict[str, tuple[Timestamp, str]] = {}
        self._offered: dict[str, Timestamp] = {}
        """The tick at which a vchannel was first found due: later orders cover at least as much."""
        self._ordered: dict[str, Timestamp] = {}
        """That tick, once the data node has accepted the order."""

    def want(self, vchannels: Iterable[str], ts: Timestamp, cause: str) -> None:
        """Have everything up to ``ts`` in binlogs soon. ``cause``: the reason that the job ledger shows."""
        self._wanted = {v: wanted for v, wanted in self._wanted.items() if self._is_behind(v, wanted[0])}
        for noted in (self._offered, self._ordered):
            for vchannel in noted.keys() - self._wanted.keys():
                del noted[vchannel]
        for vchannel in vchannels:
            known, _ = self._wanted.get(vchannel, (NO_TIMESTAMP, ""))
            if known < ts and self._is_behind(vchannel, ts):
                self._wanted[vchannel] = (ts, cause)

    def wanted(self) -> Iterable[str]:
        """Return the vchannels with entries that are wanted, or were when last looked at."""
        return self._wanted

    def is_waiting(self, vchannels: Iterable[str]) -> bool:
        """Whether wanted entries of these vchannels are not in binlogs yet, or may not be."""
        return any(v in self._wanted and self._is_behind(v, self._wanted[v][0]) for v in vchannels)

    def due(self, ticks: Mapping[str, DataNodeTick]) -> list[str]:
        """Return the vchannels to order a range of, given what their data node has just reported."""
        due = [vchannel for vchannel, tick in ticks.items() if self._is_due(tick)]
        for vchannel in due:
            self._offered.setdefault(vchannel, ticks[vchannel].ts)
        return due

    def cause(self, vchannel: str) -> str:
        """Return why a range of the vchannel is wanted; "" if none is."""
        return self._wanted.get(vchannel, (NO_TIMESTAMP, ""))[1]

    def delivered(self, vchannel: str) -> None:
        """Note that the data node has accepted an order for the vchannel."""
        if vchannel in self._offered:
            self._ordered[vchannel] = self._offered.pop(vchannel)

    def give_up(self, vchannels: Iterable[str]) -> None:
        """Forget the orders of vchannels that change owners: the new owner gets them again."""
        for vchannel in vchannels:
            self._offered.pop(vchannel, None)
            self._ordered.pop(vchannel, None)

    def forget(self, vchannel: str) -> None:
        """Want nothing of a vchannel that is dropped."""
        for noted in (self._wanted, self._offered, self._ordered):
            noted.pop(vchannel, None)

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
