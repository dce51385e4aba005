"""The index nodes that indexcoord knows, and how many builds each has.

A node says again and again that it is up. It is lost when a call to it breaks off, and when it has been
silent for a while as others have not: a machine that is gone breaks off nothing. What it was building then
is missing again. At an address the latest node counts: it has taken the place of the one before. One that
says it is up and cannot be reached is asked after all others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import structlog

from elanus.core.errors import DeadlineExceeded, Unavailable
from elanus.core.ids import NodeID
from elanus.core.segments import IndexFile
from elanus.core.world import Clock
from elanus.rpc.indexnode import BuildIndex, IndexNodeApi

_SILENCE_S = 15.0
_log = structlog.get_logger("indexcoord")


@dataclass(slots=True)
class _Node:
    node_id: NodeID
    address: str
    client: IndexNodeApi
    heard_s: float
    builds: int = 0
    calls: set[asyncio.Future[IndexFile]] = field(default_factory=set)


class IndexNodes:
    """``dial`` makes a client of the node at an address; ``builds_max`` is how many builds a node has at a
    time; ``more`` is called when there is one more node."""

    def __init__(
        self, clock: Clock, dial: Callable[[str], IndexNodeApi], builds_max: int, more: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._dial = dial
        self._builds_max = builds_max
        self._more = more
        self._nodes: dict[NodeID, _Node] = {}
        self._broken: Counter[NodeID] = Counter()
        """How often in a row calls to a node have broken off."""
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._nodes)

    def heard(self, node_id: NodeID, address: str) -> None:
        """A node has said that it is up."""
        now_s = self._clock.monotonic_s()
        if node_id in self._nodes:
            self._nodes[node_id].heard_s = now_s
            return
        for known in [n for n in self._nodes.values() if n.address == address]:
            if known.node_id > node_id:
                return  # taken for dead and replaced: the two would take the builds from each other for ever
            self._lose(known, "another has its address")
        _log.info("index node registered", node=node_id)
        self._nodes[node_id] = _Node(node_id, address, self._dial(address), now_s)
        self._happened()
        self._more()

    def forget_silent(self) -> None:
        """Give up nodes that have been silent, where there are others to build in their place."""
        since_s = self._clock.monotonic_s() - _SILENCE_S
        silent = [node for node in self._nodes.values() if node.heard_s < since_s]
        if len(silent) < len(self._nodes):
            for node in silent:
                self._lose(node, "it fell silent")

    @asynccontextmanager
    async def one(self) -> AsyncIterator[_Node | None]:
        """The node with fewest builds, as soon as one may have one more; None when there is no node."""
        node = await self._with_room()
        if node is None:
            yield None
            return
        node.builds += 1
        try:
            yield node
        finally:
            node.builds -= 1
            self._happened()

    async def build(self, node: _Node, request: BuildIndex) -> IndexFile:
        """Raises `Unavailable` and `DeadlineExceeded` for a node that is lost by that, and what the build
        raises."""
        call = asyncio.ensure_future(node.client.build_index(request))
        node.calls.add(call)
        try:
            file = await call
        except (Unavailable, DeadlineExceeded) as error:
            self._broken[node.node_id] += 1
            self._lose(node, error.message)
            raise
        except asyncio.CancelledError:
            own = asyncio.current_task()
            if own is not None and own.cancelling():
                raise
            raise Unavailable(f"index node {node.node_id} was given up") from None
        finally:
            node.calls.discard(call)
        del self._broken[node.node_id]
        return file

    async def _with_room(self) -> _Node | None:
        while self._nodes:
            node = min(self._nodes.values(), key=lambda n: (n.builds, self._broken[n.node_id], n.node_id))
            if node.builds < self._builds_max:
                return node
            await self._changed.wait()
        return None

    def _lose(self, node: _Node, why: str) -> None:
        if self._nodes.get(node.node_id) is not node:
            return
        _log.info("index node lost; its builds are assigned anew", node=node.node_id, why=why)
        del self._nodes[node.node_id]
        for call in tuple(node.calls):
            call.cancel()
        self._happened()

    def _happened(self) -> None:
        """Wake whoever waits for room."""
        self._changed.set()
        self._changed = asyncio.Event()
