"""Admission: requests that a switch denies or that exceed a rate are refused before anything is done.

Each proxy has its share of a rate, which follows the demand of its clients (`elanus.core.rate_shares`). The
proxy reports the demand with its time ticks, and the answer has the shares. While it has none, or an old one,
the share is an equal part. A request over the limit is refused and not delayed, so it holds no thread: Milvus
clients repeat it after a pause of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from elanus.core.errors import RateLimited
from elanus.core.ids import CollectionID
from elanus.core.rate_limits import EVERYTHING, Action, Allowed, Rate, TokenBucket, refuse_denied
from elanus.core.rate_shares import DemandMeter
from elanus.proxy.role.cache import CachedCollection
from elanus.proxy.role.disk_limits import DiskLimits

_BUCKETS_MAX = 10_000
_ALL = CollectionID(0)
"""The key of the buckets of the server's own rates."""
_DEMANDS_MAX = 1000
"""The most limits that a report names; the proxies have equal shares of further ones."""
_SHARES_KEPT_S = 3.0
"""Older shares are not used: proxies may have come and gone."""
_Limit = tuple[CollectionID, Rate]
_UNITS = {Rate.SEARCH: "query vectors", Rate.QUERY: "queries"}


class Admission:
    """``of_database``: what a database's properties allow. ``server``: rates a second of all collections and
    proxies together. ``proxies``: how many proxies are live; 0: this one has no share of any rate, and
    refuses what is limited. ``disk``: None if files have no limits. Safe to call from any thread.
    """

    def __init__(
        self,
        of_database: Callable[[str], Allowed],
        server: Mapping[Rate, float],
        proxies: Callable[[], int],
        now_s: Callable[[], float],
        disk: DiskLimits | None = None,
    ) -> None:
        self._disk = disk
        self._of_database = of_database
        self._server = server
        self._proxies = proxies
        self._now_s = now_s
        self._buckets: dict[_Limit, TokenBucket] = {}
        self._demands: dict[_Limit, DemandMeter] = {}
        """Limits that were asked for lately."""
        self._shares: Mapping[_Limit, float] = {}
        self._shares_at_s = float("-inf")
        self._lock = threading.Lock()

    def demand(self) -> dict[str, float]:
        """Return the demand for each limit that was asked for lately, for the proxy's report."""
        with self._lock:
            now_s = self._now_s()
            found = {limit: meter.look(now_s) for limit, meter in self._demands.items()}
            for limit in [limit for limit, demand in found.items() if not demand]:
                del self._demands[limit], found[limit]
        return {f"{collection_id}/{rate}": demand for (collection_id, rate), demand in found.items()}

    def use_shares(self, shares: Mapping[str, float]) -> None:
        """Take the answer to a report."""
        found = {}
        for name, share in shares.items():
            collection_id, _, rate = name.partition("/")
            found[CollectionID(int(collection_id)), Rate(rate)] = share
        with self._lock:
            self._shares, self._shares_at_s = found, self._now_s()

    def allow(self, action: Action, cached: CachedCollection) -> None:
        """Raises `ForceDenied` when a switch denies the action on the collection."""
        view = cached.view
        refuse_denied(action, view.database, self._of_database(view.database), view.name, cached.allowed)

    def allow_in(self, action: Action, database: str) -> None:
        """The same for a collection that does not exist yet, or may not."""
        refuse_denied(action, database, self._of_database(database), "", EVERYTHING)

    def write(self, cached: CachedCollection, rate: Rate, size_bytes: int) -> None:
        """Admit a write. Raises `ForceDenied`, `DiskLimitExceeded`, `RateLimited`."""
        self.allow(Action.WRITING, cached)
        if rate is not Rate.DELETE:  # deletes are what makes room again
            self.check_disk(cached, size_bytes)
        self._take(cached, rate, size_bytes)

    def check_disk(self, cached: CachedCollection, size_bytes: int) -> None:
        """Raises `DiskLimitExceeded` when that much more would exceed a limit."""
        if self._disk is not None:
            self._disk.check(cached, self._of_database(cached.view.database), size_bytes)

    def read(self, cached: CachedCollection, rate: Rate, amount: int) -> None:
        """Admit a read of that many query vectors, or queries. Raises `ForceDenied`, `RateLimited`."""
        self.allow(Action.READING, cached)
        self._take(cached, rate, amount)

    def spend(self, cached: CachedCollection, rate: Rate, amount: int) -> None:
        """Count a part of a request that was admitted before. Later requests wait for it."""
        if not self._limits(cached, rate):
            return
        with self._lock:
            self._ask(cached, rate, amount, self._now_s())
            for bucket, _ in self._buckets_of(cached, rate):
                bucket.spend(amount)

    def _take(self, cached: CachedCollection, rate: Rate, amount: int) -> None:
        """From both buckets or from none."""
        if not self._limits(cached, rate):
            return
        if not self._proxies():
            raise self._exceeded(cached, rate)
        with self._lock:
            buckets = self._buckets_of(cached, rate)
            now_s = self._now_s()
            self._ask(cached, rate, amount, now_s)
            for bucket, limit in buckets:
                if not bucket.is_positive(limit, now_s):
                    raise self._exceeded(cached, rate)
            for bucket, limit in buckets:
                bucket.take(amount, limit, now_s)

    def _limits(self, cached: CachedCollection, rate: Rate) -> bool:
        return rate in cached.allowed.rates or rate in self._server

    def _ask(self, cached: CachedCollection, rate: Rate, amount: int, now_s: float) -> None:
        """Note what is asked for, admitted or not."""
        for limit, _ in self._limits_of(cached, rate):
            meter = self._demands.get(limit)
            if meter is None:
                if len(self._demands) >= _DEMANDS_MAX:
                    continue
                meter = self._demands[limit] = DemandMeter(now_s)
            meter.ask(amount)

    def _limits_of(self, cached: CachedCollection, rate: Rate) -> list[tuple[_Limit, float]]:
        """The limits of the collection and of the server, for all proxies together."""
        limits = ((cached.collection_id, cached.allowed.rates.get(rate)), (_ALL, self._server.get(rate)))
        return [((key, rate), limit) for key, limit in limits if limit is not None]

    def _buckets_of(self, cached: CachedCollection, rate: Rate) -> list[tuple[TokenBucket, float]]:
        """The collection's bucket and that of the server, each with this proxy's share of its rate."""
        found = []
        for key, limit in self._limits_of(cached, rate):
            own = limit * self._share(key)
            found.append((self._bucket(key, own), own))
        return found

    def _share(self, key: _Limit) -> float:
        share = self._shares.get(key)
        if share is None or self._now_s() - self._shares_at_s > _SHARES_KEPT_S:
            return 1 / max(1, self._proxies())
        return share

    def _bucket(self, key: _Limit, limit: float) -> TokenBucket:
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= _BUCKETS_MAX:
                self._buckets.pop(next(key for key in self._buckets if key[0] != _ALL))
            bucket = self._buckets[key] = TokenBucket(limit, self._now_s())
        return bucket

    def _exceeded(self, cached: CachedCollection, rate: Rate) -> RateLimited:
        own, of_all = cached.allowed.rates.get(rate), self._server.get(rate)
        limits = [f"{own:g} for collection {cached.view.name}"] if own is not None else []
        limits += [f"{of_all:g} for the server (rate_limits)"] if of_all is not None else []
        shown = min(limit for limit in (own, of_all) if limit is not None)
        return RateLimited(
            "request is rejected by grpc RateLimiter middleware, please retry later: "
            f"rate limit exceeded[rate={shown:g}]: {rate} rate, {_UNITS.get(rate, 'bytes')} a second: "
            f"{', '.join(limits)}; send less at a time, or raise the limit"
        )
