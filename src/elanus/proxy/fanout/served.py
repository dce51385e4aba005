"""Up to which timestamp each replica serves, as its query nodes reported with their answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from elanus.api.query_channel import QueryChannelInfo
from elanus.core.errors import Unavailable
from elanus.core.ids import CollectionID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.proxy.fanout.membership import KnownReplica
from elanus.proxy.fanout.pending import Gathering

_FRESH_S = 0.5
"""A report older than this is not used."""


@dataclass(frozen=True, slots=True)
class _Report:
    ts: Timestamp
    seen_s: float


class ServiceTimes:
    """The latest reports, by collection and query channel. Safe for all threads.

    ``now_s``: seconds on a clock that never goes back. ``is_read``: whether a collection is still read; it
    must be false before `forget` is called, or the last answers would bring the collection back.
    """

    def __init__(
        self, now_s: Callable[[], float], is_read: Callable[[CollectionID], bool] = lambda _: True
    ) -> None:
        self._now_s = now_s
        self._is_read = is_read
        self._reports: dict[CollectionID, dict[str, _Report]] = {}
        self._lock = threading.Lock()

    def answered(self, info: QueryChannelInfo, ts: Timestamp) -> None:
        """Note the service time in the answers to a read. One that took long may report an earlier time."""
        with self._lock:
            known = self._reports.get(info.collection_id, {}).get(info.channel)
            if known is None or ts >= known.ts:
                self._note(info, ts)

    def _note(self, info: QueryChannelInfo, ts: Timestamp) -> None:
        """The lock is held."""
        if self._is_read(info.collection_id):
            self._reports.setdefault(info.collection_id, {})[info.channel] = _Report(ts, self._now_s())

    def collect(
        self,
        asked: Iterable[tuple[QueryChannelInfo, Gathering]],
        wait: Callable[[Gathering, QueryChannelInfo], object],
        failures: list[Unavailable],
    ) -> list[Timestamp]:
        """Return the service times of the replicas that have answered when ``wait`` returns.

        A newly reported time counts even if it is earlier: a node that lags may have joined the replica.
        ``wait`` returns None if there is no answer yet. Its errors are added to ``failures``.
        """
        found: list[Timestamp] = []
        for info, gathering in asked:
            try:
                answer = wait(gathering, info)
            except Unavailable as error:
                failures.append(error)
                continue
            if answer is not None:
                found.append(Timestamp(gathering.service_ts))
                with self._lock:
                    self._note(info, found[-1])
        return found

    def lowest(self, collection_id: CollectionID, channels: Collection[str]) -> Timestamp | None:
        """Return the lowest service time of these replicas; None if one has not reported recently."""
        reports = self._reports.get(collection_id, {})
        known = [reports.get(channel) for channel in channels]
        oldest_s = self._now_s() - _FRESH_S
        fresh = [r.ts for r in known if r is not None and r.seen_s >= oldest_s and r.ts != NO_TIMESTAMP]
        return min(fresh) if fresh and len(fresh) == len(known) else None

    def in_turn(self, replicas: Sequence[KnownReplica], turn: int, read_ts: Timestamp) -> list[KnownReplica]:
        """Return the replicas in the order in which a read asks them.

        They take turns, but a replica that is known to serve ``read_ts`` precedes those that are not: there
        the read would wait for their nodes.
        """
        first = turn % max(1, len(replicas))
        order = [*replicas[first:], *replicas[:first]]
        return sorted(order, key=lambda replica: not self._is_served(replica.info, read_ts))

    def _is_served(self, info: QueryChannelInfo, ts: Timestamp) -> bool:
        report = self._reports.get(info.collection_id, {}).get(info.channel)
        return report is not None and report.ts >= ts

    def forget(self, collection_id: CollectionID) -> None:
        with self._lock:
            self._reports.pop(collection_id, None)
