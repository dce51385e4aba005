"""The index nodes that indexcoord knows, and how many builds each has.

A node registers again and again. It is lost when a call to it breaks off, or when it has been silent for a
while and others have not: calls to a machine that is gone do not break off. Its builds are then missing
again. At each address the latest node counts: it has replaced the earlier one. A node that registers but
cannot be reached is asked after all others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import structlog

from elanus.api.indexnode import BuildIndex, IndexNodeApi
from elanus.core.clock import Clock
from elanus.core.errors import DeadlineExceeded, Unavailable
from elanus.core.ids import NodeID
from elanus.core.segments import IndexFile

_SILENCE_S = 15.0
_BROKEN_KEPT_S = 600.0
"""A node that registers does so every few seconds: one that has not come back until then never will."""
_log = structlog.get_logger("indexcoord")


@dataclass(slots=True)
class _Broken:
    """``times``: how many calls in a row to a node have broken off; ``last_s``: when the last one did."""

    times: int
    last_s: float


@dataclass(slots=True)
class _Node:
    node_id: NodeID
    address: str
    client: IndexNodeApi
    heartbeat_s: float
    builds_max: int
    builds: int = 0
    calls: set[asyncio.Future[IndexFile]] = field(default_factory=set)


class IndexNodes:
    """``dial`` makes a client for the node at an address; ``more`` is called when there is one more node."""

    def __init__(self, clock: Clock, dial: Callable[[str], IndexNodeApi], more: Callable[[], None]) -> None:
        self._clock = clock
        self._dial = dial
        self._more = more
        self._nodes: dict[NodeID, _Node] = {}
        self._broken: dict[NodeID, _Broken] = {}
        """Of nodes that are lost, too: they may register again."""
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._nodes)

    def heartbeat(self, node_id: NodeID, address: str, builds_max: int) -> None:
        """Note that a node has registered, for the first time or again. It has ``builds_max`` builds at a
        time from now on."""
        now_s = self._clock.monotonic_s()
        node = self._nodes.get(node_id)
        if node is not None:
            node.heartbeat_s = now_s
            if node.builds_max != builds_max:
                node.builds_max = builds_max
                self._happened()
            return
        for known in [n for n in self._nodes.values() if n.address == address]:
            if known.node_id > node_id:
                return  # dead and replaced: otherwise the two would take builds from each other forever
            self._lose(known, "another has its address")
        _log.info("index node registered", node=node_id)
        self._nodes[node_id] = _Node(node_id, address, self._dial(address), now_s, builds_max)
        self._happened()
        self._more()

    def stops(self, node_id: NodeID) -> None:
        """Give up a node that says that it stops."""
        node = self._nodes.get(node_id)
        if node is not None:
            self._lose(node, "it stops")

    def forget_silent(self) -> None:
        """Give up silent nodes, if there are others to build in their place."""
        now_s = self._clock.monotonic_s()
        since_s = now_s - _SILENCE_S
        silent = [node for node in self._nodes.values() if node.heartbeat_s < since_s]
        if len(silent) < len(self._nodes):
            for node in silent:
                self._lose(node, "it fell silent")
        for node_id, broken in tuple(self._broken.items()):
            if node_id not in self._nodes and broken.last_s < now_s - _BROKEN_KEPT_S:
                del self._broken[node_id]

    @asynccontextmanager
    async def one(self) -> AsyncIterator[_Node | None]:
        """Yield the node with the fewest builds once it has room for one more; None when there is no node."""
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
        """Build an index on the node. Raises `Unavailable` and `DeadlineExceeded`, after which the node is
        lost, and whatever the build raises."""
        call = asyncio.ensure_future(node.client.build_index(request))
        node.calls.add(call)
        try:
            file = await call
        except (Unavailable, DeadlineExceeded) as error:
            self._broken[node.node_id] = _Broken(self._times_broken(node) + 1, self._clock.monotonic_s())
            self._lose(node, error.message)
            raise
        except asyncio.CancelledError:
            own = asyncio.current_task()
            if own is not None and own.cancelling():
                raise
            raise Unavailable(f"index node {node.node_id} was given up") from None
        finally:
            node.calls.discard(call)
        self._broken.pop(node.node_id, None)
        return file

    async def _with_room(self) -> _Node | None:
        while self._nodes:
            free = [node for node in self._nodes.values() if node.builds < node.builds_max]
            if free:
                return min(free, key=lambda n: (n.builds, self._times_broken(n), n.node_id))
            await self._changed.wait()
        return None

    def _times_broken(self, node: _Node) -> int:
        broken = self._broken.get(node.node_id)
        return 0 if broken is None else broken.times

    def _lose(self, node: _Node, why: str) -> None:
        if self._nodes.get(node.node_id) is not node:
            return
        _log.info("index node lost; its builds are reassigned", node=node.node_id, why=why)
        del self._nodes[node.node_id]
        for call in tuple(node.calls):
            call.cancel()
        self._happened()

    def _happened(self) -> None:
        """Wake the tasks that wait for room."""
        self._changed.set()
        self._changed = asyncio.Event()
