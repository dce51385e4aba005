"""Reads of a proxy over query nodes that answer as a test says."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from fake_calls import FakeTicks
from fakes import DEFAULT, OTHER, collection, index, schema

from elanus.api.querynode import NodeHits
from elanus.core.consistency import ConsistencyLevel, ReadConsistency
from elanus.core.errors import (
    CollectionNotLoaded,
    DeadlineExceeded,
)
from elanus.core.rate_limits import EVERYTHING
from elanus.core.requests import RequestLimits
from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import Timestamp, compose
from elanus.proxy.api.query import Query
from elanus.proxy.api.search import Search, SearchTemplate
from elanus.proxy.fanout.deadline import Patience
from elanus.proxy.role.admission import Admission
from elanus.proxy.role.cache import CachedCollection, collection_view
from elanus.proxy.role.measures import NoMeasures
from elanus.proxy.role.own_writes import OwnWrites
from elanus.proxy.role.queues import DqQueue
from elanus.proxy.role.read_path import ReadPath, ReadPolicy
from elanus.proxy.role.stamps import OwnStamps
from elanus.proxy.verbs.query import Querying
from elanus.proxy.verbs.search import Searching

L = ConsistencyLevel
NOW = compose(100_000)
GRACEFUL_MS = 5000
FIRST_WAIT_S = 2.0
"""How long a read waits before it looks whether the log takes ticks at all."""


class Nodes:
    """Query nodes that have come to ``served``, and answer every search with the same hits.

    ``clock_s``: the time, which passes while a read waits in vain.
    """

    def __init__(self, served: Timestamp = NOW, hits: NodeHits | None = None) -> None:
        self.served = served
        self.hits = hits or a_query_each(1)
        self.waited: list[tuple[Timestamp, float]] = []
        self.clock_s = 0.0
        self.asked: list[Any] = []
        self.rows: dict[str, pa.Array] = {"pk": pa.array([1, 2, 3, 4])}

    def forget(self, _collection_id: int) -> None:
        """Nothing is known beyond what the test says."""

    def service_time(self, _collection_id: int, _patience: Patience) -> Timestamp:
        if self.served < 0:
            raise CollectionNotLoaded("not loaded")
        return self.served

    def wait_service_time(self, _collection_id: int, ts: Timestamp, patience: Patience) -> None:
        with patience.waiting():
            self.waited.append((ts, patience.timeout_s))
            if ts > compose(200_000):
                self.clock_s += patience.left_s()
                raise DeadlineExceeded("too late")

    def search(self, request: Any, patience: Patience) -> NodeHits:
        self.asked.append(request)
        return self.hits

    def query(self, request: Any, patience: Patience) -> dict[str, pa.Array]:
        self.asked.append(request)
        return self.rows

    def count(self, request: Any, patience: Patience) -> int:
        self.asked.append(request)
        return 17


def a_query_each(*counts: int) -> NodeHits:
    total = sum(counts)
    return NodeHits(
        "L2",
        np.concatenate(([0], np.cumsum(counts))),
        np.arange(total),
        np.linspace(0.12345, 9.87654, total, dtype=np.float32),
        {"price": pa.array([float(n) for n in range(total)])},
    )


class Waits(NoMeasures):
    def __init__(self) -> None:
        self.waits_s: list[float] = []

    def waited_for_guarantee(self, seconds: float) -> None:
        self.waits_s.append(seconds)


class ReadVerbs(Searching, Querying):
    """The verbs that read."""


class Bench:
    def __init__(
        self,
        nodes: Nodes | None = None,
        now: Timestamp = NOW,
        reads_max: int = 4,
        retention_s: float = 60.0,
        limits: RequestLimits | None = None,
    ) -> None:
        self.nodes = nodes or Nodes()
        self.queue = DqQueue(reads_max)
        self.measures = Waits()
        self.own_writes = OwnWrites(GRACEFUL_MS)
        self.ticks = FakeTicks()
        self.reads = ReadPath(
            self.nodes,
            self.queue,
            OwnStamps(lambda: now),
            self.ticks,
            self.measures,
            self.own_writes,
            ReadPolicy(GRACEFUL_MS, retention_s, timeout_s=7.0),
            lambda: self.nodes.clock_s,
        )
        self.admission = Admission(lambda _: EVERYTHING, {}, lambda: 1, time.monotonic)
        proxy: Any = SimpleNamespace(
            reads=self.reads,
            measures=self.measures,
            limits=limits or RequestLimits(),
            admission=self.admission,
        )
        self.verbs = ReadVerbs(lambda: proxy, None, tuple)  # type: ignore[arg-type]


def cached(
    of: CollectionSchema | None = None, level: ConsistencyLevel = L.BOUNDED, indexed: bool = True
) -> CachedCollection:
    found = collection(of or schema(), level=level, partitions=(DEFAULT, OTHER))
    return CachedCollection(
        collection_view("default", found), {"_default": DEFAULT, "p1": OTHER}, (index(),) if indexed else ()
    )


def search(**changes: Any) -> Search:
    template = SearchTemplate(10, params={"ef": 50}, output_fields=("price",))
    asked = Search(cached(), template, np.zeros((1, 2), np.float32), ReadConsistency())
    return changed(asked, **changes)


def changed(search: Search, **changes: Any) -> Search:
    """Return the search with other fields, its own or its template's."""
    own = {name: value for name, value in changes.items() if hasattr(search, name)}
    template = replace(search.template, **{n: v for n, v in changes.items() if n not in own})
    return replace(search, **{"template": template, **own})


def query(**changes: Any) -> Query:
    return replace(Query(cached(), (), "pk > 0", ("price",), None, 0, ReadConsistency()), **changes)
