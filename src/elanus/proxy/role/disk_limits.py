"""Disk limits: rows are refused when the files of their collection, its database or all take the space.

Datacoord knows the sizes. A proxy asks for those that are limited only, when a write needs one and the last
answer is older than `KEPT_S`: without limits nothing is asked for. So a limit may be exceeded by what is
written in that time, and by rows that are not in files yet.
"""

from __future__ import annotations

from collections.abc import Callable

from elanus.core.errors import DiskLimitExceeded
from elanus.core.ids import CollectionID
from elanus.core.rate_limits import COLLECTION_DISK, DATABASE_DISK, Allowed
from elanus.proxy.role.cache import CachedCollection

KEPT_S = 2.0
_KEPT_MAX = 10_000
_SETTING = "rate_limits.disk_max_mb"
_MB = 1024 * 1024


class DiskLimits:
    """``stored_bytes``: the size of the files of collections, of all if none is named. ``collections``: the
    ids of those in a database. ``server_bytes``: the limit for all; None for none. Safe to call from any
    thread."""

    def __init__(
        self,
        stored_bytes: Callable[[tuple[CollectionID, ...]], int],
        collections: Callable[[str], tuple[CollectionID, ...]],
        server_bytes: float | None,
        now_s: Callable[[], float],
    ) -> None:
        self._stored_bytes = stored_bytes
        self._collections = collections
        self._server_bytes = server_bytes
        self._now_s = now_s
        self._kept: dict[str | CollectionID, tuple[float, int]] = {}
        """When a size was asked for, and the answer: by collection, by database, or "" for all."""

    def check(self, cached: CachedCollection, of_database: Allowed, size_bytes: int) -> None:
        """Raises `DiskLimitExceeded` when rows of that size would exceed a limit."""
        view = cached.view
        if (limit := cached.allowed.disk_bytes) is not None:
            own = (view.collection_id,)
            used = self._used(view.collection_id, lambda: own)
            _refuse(used, size_bytes, limit, f"collection {view.name}", COLLECTION_DISK)
        if (limit := of_database.disk_bytes) is not None:
            used = self._used(view.database, lambda: self._collections(view.database))
            _refuse(used, size_bytes, limit, f"database {view.database}", DATABASE_DISK)
        if self._server_bytes is not None:
            used = self._used("", tuple)
            _refuse(used, size_bytes, self._server_bytes, "server", _SETTING)

    def _used(self, key: str | CollectionID, collections: Callable[[], tuple[CollectionID, ...]]) -> int:
        """Threads that find an old answer at the same moment may each ask."""
        now_s = self._now_s()
        known = self._kept.get(key)
        if known is not None and now_s - known[0] < KEPT_S:
            return known[1]
        wanted = collections()
        used = self._stored_bytes(wanted) if wanted or key == "" else 0
        if len(self._kept) >= _KEPT_MAX:
            self._kept.clear()
        self._kept[key] = (now_s, used)
        return used


def _refuse(used_bytes: int, size_bytes: int, limit_bytes: float, where: str, name: str) -> None:
    if used_bytes + size_bytes <= limit_bytes:
        return
    raise DiskLimitExceeded(
        "quota exceeded[reason=disk quota exceeded, please allocate more resources]: the files of the "
        f"{where} have {used_bytes / _MB:.1f} MB, and {name} allows {limit_bytes / _MB:g} MB: delete rows "
        "and compact, drop what is not needed, or raise the limit"
    )
