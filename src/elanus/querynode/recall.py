"""Measures the recall of live searches: some are repeated exactly, at their own timestamp and version.

A search that is measured hands over its snapshot, its request and its hits. A thread of the lowest priority
computes the true answer from the same snapshot, so writes in between make no difference, and compares. For a
search that missed hits, it also tries several times the effort: either that finds them, or the index is not
good enough.

The thread may use a small share of one core: after each sample it pauses for as long as that takes, and only
then is the next search taken. So for all other searches the cost is one look at a flag. A sample that is not
begun soon is dropped, because it keeps its segments in memory.

Only searches that may miss anything are measured: without grouping, boosts, function chains, pages of
iterators and lists of vectors, and with an index that does not compare all rows.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import structlog

from elanus.api.querynode import NodeHits, NodeSearch
from elanus.core.errors import ElanusError
from elanus.core.ids import CollectionID
from elanus.core.metrics import ITERATOR_PAGE, Metric
from elanus.core.recall import EFFORT_FACTOR, Measured, Misses, Sample, Tally, band_of, recall_of
from elanus.core.schema import Scalar
from elanus.core.target_recall import EFFORTS, MISS_FACTOR, TARGET_RECALL
from elanus.index import resolve_search, true_params
from elanus.index.curve import effort_name
from elanus.querynode.search import search
from elanus.querynode.snapshot import Snapshot

PIN_S = 10.0
"""How long a sample may wait for its turn."""
VALUES_MAX = 1 << 32
"""Numbers that one sample compares at most; larger collections of a node are not measured."""
PAUSE_MIN_S = 0.05
TALLIES_MAX = 1000
_IDLE_S = 60.0
_LOWEST = 19
_log = structlog.get_logger("querynode")


@dataclass(frozen=True, slots=True)
class _Taken:
    snapshot: Snapshot
    request: NodeSearch
    hits: NodeHits
    at_s: float


_Key = tuple[CollectionID, str, str, str]
Counted = Callable[[str, str, float], None]
"""Called for each sample with index type, band and recall."""


class RecallSampler:
    """``cpu_share``: of one core that the measuring may use; 0: nothing is measured. ``target``: the recall
    that searches should have. Any thread may call the methods."""

    def __init__(
        self,
        cpu_share: float,
        target: float,
        counted: Counted = lambda index, band, recall: None,
        *,
        now_s: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self.target = target
        self._cpu_share = cpu_share
        self._counted = counted
        self._now_s = now_s
        self._cpu_s = cpu_s
        self._wants = cpu_share > 0
        self._taken: _Taken | None = None
        self._tallies: dict[_Key, Tally] = {}
        self._misses: dict[_Kind, Misses] = {}
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def offer(self, snapshot: Snapshot, request: NodeSearch, hits: NodeHits) -> None:
        """A search has been answered."""
        if self._wants and _is_plain(request):
            self._take(snapshot, request, hits)

    def aimed(self, request: NodeSearch) -> NodeSearch:
        """Return the request; if it has a target recall, with what was learned from others like it."""
        if TARGET_RECALL not in request.params:
            return request
        misses = self._misses.get(_kind_of(request))
        if misses is None:
            return request
        return replace(request, params={**request.params, MISS_FACTOR: misses.factor})

    def measured(self) -> list[Measured]:
        """Return what is known, in the order of collections."""
        with self._lock:
            found = [
                Measured(*key, tally.samples, tally.recall, *tally.interval, tally.cause(self.target))
                for key, tally in self._tallies.items()
            ]
        return sorted(found, key=lambda one: one.key)

    def forget(self, collection_id: CollectionID) -> None:
        """Forget a collection that was released: it may have been dropped, or get another index."""
        with self._lock:
            self._tallies = {key: found for key, found in self._tallies.items() if key[0] != collection_id}
            self._misses = {kind: found for kind, found in self._misses.items() if kind[0] != collection_id}
            if self._taken is not None and self._taken.request.collection_id == collection_id:
                self._taken, self._wants = None, True

    def close(self) -> None:
        """Take no more samples, and end the thread."""
        with self._arrived:
            self._is_closed, self._wants, self._taken = True, False, None
            self._arrived.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _take(self, snapshot: Snapshot, request: NodeSearch, hits: NodeHits) -> None:
        with self._arrived:
            if not self._wants or not self._has_thread():
                return
            self._wants = False
            self._taken = _Taken(snapshot, _first_query(request), _first_hits(hits), self._now_s())
            self._arrived.notify_all()

    def _has_thread(self) -> bool:
        """Start the thread if it does not run. False if the system allows no more threads now: a search does
        not fail for want of a measurement."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="recall", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        return True

    def _run(self) -> None:
        _lower_priority()
        while True:
            with self._arrived:
                while self._taken is None and not self._is_closed:
                    self._arrived.wait(_IDLE_S)
                if self._is_closed:
                    return
            pause_s = self.measure_one()
            with self._arrived:
                self._arrived.wait_for(lambda: self._is_closed, pause_s)
                if not self._is_closed:
                    self.take_next()

    def measure_one(self) -> float:
        """Measure the search that was taken last. Returns how long to pause so that the share is kept."""
        began_s = self._cpu_s()
        with self._lock:
            taken, self._taken = self._taken, None
        if taken is None:
            return 0.0
        if self._now_s() - taken.at_s <= PIN_S and _may_miss(taken.snapshot, taken.request):
            try:
                self._measure(taken)
            except ElanusError as error:  # the segment's files may be gone by now
                _log.info("recall not measured", collection=taken.request.collection_id, error=error.message)
            except Exception:  # noqa: BLE001 - a defect: logged in full; searches are not affected
                _log.exception("recall not measured")
        return max(PAUSE_MIN_S, (self._cpu_s() - began_s) / self._cpu_share)

    def take_next(self) -> None:
        """Take the next search that is offered."""
        self._wants = True

    def _learn(self, request: NodeSearch, recall: float) -> None:
        """A search with a target was measured. The lock must be held."""
        kind = _kind_of(request)
        misses = self._misses.pop(kind, None) or Misses()
        while len(self._misses) >= TALLIES_MAX:
            del self._misses[next(iter(self._misses))]
        factor = float(request.params.get(MISS_FACTOR, 1.0))
        learned = replace(misses)  # searches look at it without the lock
        learned.add(recall, float(request.params[TARGET_RECALL]), factor)
        self._misses[kind] = learned

    def _measure(self, taken: _Taken) -> None:
        snapshot, request, hits = taken.snapshot, taken.request, taken.hits
        metric = Metric(hits.metric_type)
        truth = search(snapshot, replace(request, params=true_params(metric, request.params)), 1)
        recall = _recall(hits, truth)
        effort, more = _more_effort(snapshot, request)
        tried = None
        if recall < 1 and more is not None:
            tried = _recall(search(snapshot, replace(request, params=more), 1), truth)
        spec = snapshot.specs[request.field_id]
        name = snapshot.schema.by_id[request.field_id].name
        matching, rows, codes = _extent(snapshot, request)
        key = (request.collection_id, name, spec.index_type, band_of(matching, rows))
        with self._lock:
            tally = self._tallies.pop(key, None) or Tally()
            while len(self._tallies) >= TALLIES_MAX:
                del self._tallies[next(iter(self._tallies))]
            self._tallies[key] = tally
            tally.add(Sample(recall, tried, effort, codes))
            if TARGET_RECALL in request.params:
                self._learn(request, recall)
        self._counted(spec.index_type, key[3], recall)


_Kind = tuple[CollectionID, int, bool]


def _kind_of(request: NodeSearch) -> _Kind:
    """Return the searches among which misses are compared: those with filters are of another kind."""
    return request.collection_id, request.field_id, request.filter.matches_all


def _is_plain(request: NodeSearch) -> bool:
    is_page = ITERATOR_PAGE in request.params
    has_own_scores = request.boosts is not None or request.chains is not None
    return request.grouping is None and not has_own_scores and not is_page and len(request.queries) > 0


def _may_miss(snapshot: Snapshot, request: NodeSearch) -> bool:
    """Whether the search may have missed hits, and can be measured."""
    field = snapshot.schema.by_id[request.field_id]
    if field.has_vector_lists or not field.vector.has_dim:
        return False
    values = approximate = 0
    for segment in snapshot.segments:
        for block in segment.blocks:
            index = block.vectors[request.field_id].index
            values += block.rows * field.dim
            approximate += index is not None and index.spec.kind.over_rows is None
    return approximate > 0 and values <= VALUES_MAX


def _first_query(request: NodeSearch) -> NodeSearch:
    return replace(request, queries=request.queries[:1], output_fields=())


def _first_hits(hits: NodeHits) -> NodeHits:
    count = int(hits.offsets[1])
    return NodeHits(hits.metric_type, np.array([0, count]), hits.ids[:count], hits.scores[:count], {})


def _recall(hits: NodeHits, truth: NodeHits) -> float:
    return recall_of(hits.ids.tolist(), hits.scores, truth.ids.tolist(), truth.scores)


def _more_effort(snapshot: Snapshot, request: NodeSearch) -> tuple[str, Mapping[str, Scalar] | None]:
    """Return the parameter that sets the effort with its value, and the parameters of a search with more."""
    spec = snapshot.specs[request.field_id]
    name = effort_name(spec.kind)
    if not name or TARGET_RECALL in request.params:
        return "", None
    value = resolve_search(spec, request.params, request.k).number(name, 0)
    others = {key: value for key, value in request.params.items() if key not in ("level", name)}
    return f"{name} {value}", {**others, name: min(value * EFFORT_FACTOR, EFFORTS[name])}


def _extent(snapshot: Snapshot, request: NodeSearch) -> tuple[int, int, bool]:
    """Return how many rows the search chooses from, of how many, and whether any index compares codes."""
    blocks = snapshot.blocks(
        request.read_ts, request.partition_ids, request.ignore_growing, request.expired_until
    )
    matching = sum(
        block.select(request.read_ts, request.filter, request.expired_until).count for block in blocks
    )
    indexes = [block.vectors[request.field_id].index for block in blocks]
    rows = sum(block.rows for block in blocks)
    codes = any(index is not None and not index.has_raw_vectors for index in indexes)
    return (rows if request.filter.matches_all else matching), rows, codes


def _lower_priority() -> None:
    """Let every other thread of the machine run first."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)
    except OSError as error:
        _log.info("recall thread keeps its priority", error=str(error))
