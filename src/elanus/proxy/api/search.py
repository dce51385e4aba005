"""The verbs of searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from msgspec import field as structs_field

from elanus.core.buckets import Bucket, Levels
from elanus.core.consistency import ReadConsistency
from elanus.core.function_chains import Chains
from elanus.core.grouping import Grouping
from elanus.core.ids import CollectionID
from elanus.core.moments import IN_UTC, TimeFormat, with_offsets
from elanus.core.ordering import OrderBy
from elanus.core.quick_values import quick
from elanus.core.rankers import Ranker
from elanus.core.reduce import PrimaryKeys
from elanus.core.schema import CollectionSchema, Scalar
from elanus.core.timestamps import Timestamp
from elanus.core.vector_lists import Queries
from elanus.text import Highlight

if TYPE_CHECKING:  # the cache imports the filter language and the indexes, which the wire does not need
    from elanus.proxy.role.cache import CachedCollection


@dataclass(frozen=True, slots=True)
class BoostRequest:
    """``filter``: blank for all rows. ``random_field`` "": the primary key; see `elanus.api.boosts.Boost`."""

    filter: str
    weight: float
    is_random: bool = False
    seed: int = 0
    random_field: str = ""


@dataclass(frozen=True, slots=True)
class BoostRequests:
    """``boost_mode``, ``function_mode``: see `elanus.api.boosts.Boosts`."""

    functions: tuple[BoostRequest, ...]
    boost_mode: str = "multiply"
    function_mode: str = "multiply"

    def in_zone(self, zone: str) -> BoostRequests:
        """Return the same boosts, with filters whose moments say their offset from UTC."""
        functions = (replace(boost, filter=with_offsets(boost.filter, zone)) for boost in self.functions)
        return replace(self, functions=tuple(functions))


@dataclass(frozen=True, slots=True)
class IteratorPage:
    """The page that a client requests: at most ``size`` rows after ``bound`` (None: the first page).

    ``token``: "" for the first page.
    """

    size: int
    token: str = ""
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class SearchTemplate:
    """All that a search asks for apart from its vectors. Programs repeat it with new ones.

    ``limit``, ``offset``: of the hits of each query. ``vector_field`` "": the only one. ``partitions``: their
    names (empty: all). ``metric_type`` "": the index's. ``params``: the index's search parameters (``ef``,
    ``nprobe``, ``radius``, ``range_filter``). ``round_decimal`` -1: scores are not rounded.
    ``collection_id``: the collection that the name must still refer to (None: any); set for pages of an
    iterator. ``page``: set for a page of a second-generation search iterator. ``levels``: of the buckets that
    are wanted instead of hits; ``grouping`` and ``limit`` are then theirs. ``times``: how the answer shows
    moments. ``measures_recall``: the answer has the recall of each query. ``may_repeat``: further searches of
    the collection may carry this very object, so it pays to keep what follows from it.
    """

    limit: int
    offset: int = 0
    vector_field: str = ""
    partitions: tuple[str, ...] = ()
    filter: str = ""
    filter_values: Mapping[str, object] = field(default_factory=dict)
    metric_type: str = ""
    params: Mapping[str, Scalar] = field(default_factory=dict)
    output_fields: tuple[str, ...] = ()
    round_decimal: int = -1
    ignore_growing: bool = False
    collection_id: CollectionID | None = None
    page: IteratorPage | None = None
    grouping: Grouping | None = None
    levels: Levels = ()
    ranker: Ranker | None = None
    boosts: BoostRequests | None = None
    chains: Chains | None = None
    order: tuple[OrderBy, ...] = ()
    times: TimeFormat = IN_UTC
    measures_recall: bool = False
    may_repeat: bool = False


@quick
class Search(Struct, frozen=True, gc=False):
    """A template with the vectors of one request, given in one of three ways.

    ``queries``: float32 (nq, dim), uint8 (nq, dim / 8) for binary vectors, uint64 (nq, pairs) for sparse
    ones, or nq lists of vectors (`elanus.core.vector_lists`). ``query_ids``: the keys of rows that have them.
    ``texts``: a provider turns these into them (`elanus.proxy.embedding`). ``highlight``: what to highlight
    in the hits. ``timeout_s``: how long the client waits (None: as long as the server does).
    """

    collection: CachedCollection
    template: SearchTemplate
    queries: Queries
    consistency: ReadConsistency
    query_ids: pa.Array | None = None
    texts: tuple[str, ...] = ()
    highlight: Highlight | None = None
    timeout_s: float | None = None

    @property
    def query_count(self) -> int:
        """How many vectors are searched for."""
        if self.texts:
            return len(self.texts)
        return len(self.queries) if self.query_ids is None else len(self.query_ids)

    @property
    def iterates(self) -> bool:
        """Whether it is a page of a search iterator of either generation."""
        return self.template.page is not None or self.consistency.pinned


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


@dataclass(frozen=True, slots=True)
class PageEnd:
    """The values that the client sends back when it requests the next page. ``bound`` is a float32 number."""

    token: str
    bound: float


@quick
class SearchResult(Struct, frozen=True, gc=False):
    """Hits of query i are at ``offsets[i]:offsets[i + 1]``, best first.

    ``scores``: float32, in the metric's own terms; ``fields``: output
    columns by name, aligned with ``ids`` (``$meta`` holds whole dynamic rows; fronts pick the
    keys named in ``dynamic_fields``, or all of them when that is ``None``). ``page_end``: where the page of
    an iterator ended. ``groups``: the values of the grouping fields, aligned with ``ids``. ``highlights``:
    the fragments of each hit, by field. ``elements``: which element of a struct array each hit is.
    ``recalls``: of each query, if they were asked for. ``buckets``: of each query, if ``levels`` were asked
    for; their hits are places in ``ids``.
    """

    offsets: npt.NDArray[np.int64]
    ids: PrimaryKeys
    scores: npt.NDArray[np.float32]
    fields: Mapping[str, pa.Array]
    output_fields: tuple[str, ...]
    dynamic_fields: tuple[str, ...] | None
    schema: CollectionSchema
    ts: Timestamp
    page_end: PageEnd | None = None
    groups: Mapping[str, pa.Array] = structs_field(default_factory=dict)
    highlights: Mapping[str, Sequence[Sequence[str]]] = structs_field(default_factory=dict)
    elements: npt.NDArray[np.int64] | None = None
    recalls: tuple[float, ...] = ()
    levels: Levels = ()
    buckets: tuple[tuple[Bucket, ...], ...] | None = None


class SearchVerbs(Protocol):
    """A search is answered as of one timestamp, in the thread that calls it.

    Raises `InvalidParameter`, `InvalidFilter`, `FieldNotLoaded`, `PartitionNotFound`, `IndexNotFound`,
    `CollectionNotLoaded`, `SegmentUnreadable`, `RateLimited`, and `DeadlineExceeded` if the timestamp is not
    served, or the nodes have not answered, within the timeout.
    """

    def search(self, request: Search) -> SearchResult:
        """Return the nearest rows of each query vector."""
        ...

    def hybrid_search(self, request: HybridSearch) -> SearchResult:
        """Return one list for each query: the hits of all searches, fused by the ranker."""
        ...
