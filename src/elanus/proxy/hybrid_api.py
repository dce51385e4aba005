"""The value in the verb of hybrid search, next to those of `elanus.proxy.api`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from elanus.core.consistency import ReadConsistency
from elanus.core.grouping import Grouping
from elanus.core.rankers import Ranker
from elanus.proxy.api import Search

if TYPE_CHECKING:
    from elanus.proxy.role.cache import CachedCollection


@dataclass(frozen=True, slots=True)
class HybridSearch:
    """Several searches of one collection as of one moment, whose hits are fused.

    Of ``searches`` only the vectors, the field, the filter, the limit and the parameters count: partitions,
    consistency, output fields and rounding are the hybrid search's own. ``grouping``: ``limit`` and
    ``offset`` count groups, in the order of the ``group_scorer`` of their hits.
    """

    collection: CachedCollection
    partitions: tuple[str, ...]
    searches: tuple[Search, ...]
    ranker: Ranker
    limit: int
    offset: int
    output_fields: tuple[str, ...]
    round_decimal: int
    consistency: ReadConsistency
    ignore_growing: bool = False
    timeout_s: float | None = None
    grouping: Grouping | None = None
    group_scorer: str = "max"
