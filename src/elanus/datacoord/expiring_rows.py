"""When rows of a segment expire that have a time-to-live field: found once for each manifest.

Two moments are kept of a segment: when its first row expires, and when so many have that it is worth
rewriting. So looking again costs nothing that grows with rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from elanus.core.schema import CollectionSchema
from elanus.core.segments import SegmentManifest
from elanus.core.time_to_live import moment_us, moments_of_expiry
from elanus.core.timestamps import Timestamp
from elanus.datacoord.dead_rows import Reader
from elanus.storage.binlog import read_columns


@dataclass(frozen=True, slots=True)
class Expiring:
    """``first_us`` and ``worthwhile_us``: microseconds since 1970. ``rows``: how many expire by then."""

    first_us: int
    worthwhile_us: int
    rows: int

    def expired_by(self, now_us: int) -> int:
        """Return how many rows have certainly expired: none, one, or enough for a rewrite."""
        if now_us >= self.worthwhile_us:
            return self.rows
        return int(now_us >= self.first_us)


class ExpiringRows:
    """``ratio``: the share of a segment's rows that is worth a rewrite."""

    def __init__(self, reader: Reader, ratio: float) -> None:
        self._reader = reader
        self._ratio = ratio
        self._known: dict[tuple[str, str], Expiring] = {}

    async def count(
        self, path: str, manifest: SegmentManifest, schema: CollectionSchema, until: Timestamp
    ) -> int:
        """Return how many rows have certainly expired at ``until``. Raises whatever reading raises.

        ``path``: of the manifest.
        """
        if not schema.ttl_field or not manifest.rows:
            return 0
        key = path, schema.ttl_field
        known = self._known.get(key)
        if known is None:
            known = await self._reader.offload(self._read, manifest, schema)
            self._known[key] = known
        return known.expired_by(moment_us(until))

    def _read(self, manifest: SegmentManifest, schema: CollectionSchema) -> Expiring:
        name = schema.ttl_field
        column = read_columns(self._reader.store, manifest, [name], schema.added_fields).column(0)
        moments = moments_of_expiry(column.combine_chunks())
        rows = max(1, int(np.ceil(self._ratio * len(moments))))
        place = min(rows, len(moments)) - 1
        return Expiring(int(moments.min()), int(np.partition(moments, place)[place]), place + 1)

    def keep(self, is_kept: Callable[[str], bool]) -> None:
        """Forget all manifests but those whose paths are kept."""
        self._known = {key: found for key, found in self._known.items() if is_kept(key[0])}
