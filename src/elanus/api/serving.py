"""The interfaces of a serving process: a proxy and a query node that answer reads next to the main process.

Such a process answers reads of a collection only while it holds a *grant* for it. The query coordinator gives
the grant when the process's node serves what clients' own replica serves, and takes it back before any change
that a read there would miss. Without a grant, and after any failure, the read is passed on to the main
process, so a missing grant costs time and never an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from elanus.api.fencing import order_of
from elanus.api.idempotency import repeatable
from elanus.api.querynode import QueryNodeApi
from elanus.core.ids import CollectionID
from elanus.core.recall import Measured
from elanus.core.slow_requests import SlowRequest

EVERY_COLLECTION = CollectionID(0)


class ReadGrants(Protocol):
    """Which collections the reads of a serving process may use its own query node for."""

    @order_of("querycoord")
    @repeatable
    async def grant(self, collection_id: CollectionID) -> None:
        """Reads that arrive from now on may be answered here."""
        ...

    @order_of("querycoord")
    @repeatable
    async def withhold(self, collection_id: CollectionID) -> None:
        """Return when no further read begins to look at the collection (`EVERY_COLLECTION`: at any) here.

        Reads that have begun are completed.
        """
        ...


@dataclass(frozen=True, slots=True)
class MirrorNode:
    """A node that holds all loaded collections for the readers of its process, and their grants.

    ``grants``: its `ReadGrants.withhold` always succeeds: if the process does not answer, it is ended first.
    """

    node: QueryNodeApi
    grants: ReadGrants


@dataclass(frozen=True, slots=True)
class ServingFacts:
    """The report of a serving process about itself.

    ``collections``: how many it holds grants for. ``reads``: answered here; ``passed_on``: calls of all
    kinds that the main process answered. ``loop_lag_s``: the longest delay of its event loop in the last 30
    to 60 seconds. ``slow_requests``: reads in its slow log, since it started.
    """

    collections: int
    reads: int
    passed_on: int
    memory_bytes: int
    loop_lag_s: float
    slow_requests: int = 0


@dataclass(frozen=True, slots=True)
class ServingObserved:
    """The reads of a serving process as it has observed them: the slow ones, oldest first, and the recall."""

    slow: tuple[SlowRequest, ...]
    recalls: tuple[Measured, ...]


class ServingProcessApi(Protocol):
    async def open(self, port: int) -> None:
        """Listen on the port that the main process listens on. Raises `Unavailable`."""
        ...

    @repeatable
    async def facts(self) -> ServingFacts: ...

    @repeatable
    async def observed(self) -> ServingObserved: ...
