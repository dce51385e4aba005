"""The verb of queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from elanus.core.consistency import ReadConsistency
from elanus.core.ids import CollectionID
from elanus.core.moments import IN_UTC, TimeFormat
from elanus.core.ordering import OrderBy
from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import Timestamp

if TYPE_CHECKING:  # the cache imports the filter language and the indexes, which the wire does not need
    from elanus.proxy.role.cache import CachedCollection


@dataclass(frozen=True, slots=True)
class ElementCursor:
    """Where a page of elements ended: at an element of the row with a primary key, given as text."""

    key: str
    element: int


@dataclass(frozen=True, slots=True)
class Query:
    """``ids`` (with an empty filter) selects rows by primary key; ``limit`` None: all rows.

    ``collection_id``: the collection that the name must still refer to (None: any); set for pages of an
    iterator. ``timeout_s``: how long the client waits (None: as long as the server does). ``order``: the
    order of the rows (empty: that of keys). ``group_by``: the fields to group by; the output fields are then
    these and aggregates. ``times``: how the answer shows moments. ``after``: of a query with an
    ``element_filter``, whose limit and offset count elements: where they begin.
    """

    collection: CachedCollection
    partitions: tuple[str, ...]
    filter: str
    output_fields: tuple[str, ...]
    limit: int | None
    offset: int
    consistency: ReadConsistency
    filter_values: Mapping[str, object] = field(default_factory=dict)
    ids: Sequence[int] | Sequence[str] | None = None
    ignore_growing: bool = False
    collection_id: CollectionID | None = None
    timeout_s: float | None = None
    order: tuple[OrderBy, ...] = ()
    group_by: tuple[str, ...] = ()
    times: TimeFormat = IN_UTC
    after: ElementCursor | None = None


@dataclass(frozen=True, slots=True)
class QueryResult:
    """``fields`` by name, all of the same length. Aggregates (``count(*)``) have the client's names.

    ``elements``: of a query with an ``element_filter``, which elements of each row it chooses:
    ``list<int64>``, places from 0.
    """

    fields: Mapping[str, pa.Array]
    output_fields: tuple[str, ...]
    dynamic_fields: tuple[str, ...] | None
    schema: CollectionSchema
    ts: Timestamp
    elements: pa.Array | None = None


class QueryVerbs(Protocol):
    def query(self, request: Query) -> QueryResult:
        """Return rows by filter or key, their number, or aggregates over them. Raises as a search does."""
        ...
