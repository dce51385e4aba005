"""The compaction orders under way: how many a data node gets, and which of them are lost.

How many compactions a data node can run at a time depends on its Spark, whose cores may come and go. The node
says so with the answer to each order, and whenever it is looked at. Until its first answer it gets one order.

A node that ends takes its orders with it. But an order can also be lost while its node lives on: the node
could not report how it ended, or got no answer to its commit. So each node with orders is asked from time to
time which of them it still has. Orders are given and looked at by one task, one after the other: all orders
on record had arrived when a node was asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from elanus.core.clock import Clock
from elanus.core.errors import ElanusError
from elanus.core.ids import NodeID
from elanus.datacoord.datanodes import LiveNode

LOOK_INTERVAL_S = 10.0
"""How often a node with orders is asked for them."""
_ROOM_UNTIL_KNOWN = 1
_log = structlog.get_logger("datacoord")


@dataclass(frozen=True, slots=True)
class GivenOrder:
    """One attempt of a plan, on a data node. ``deadline_s`` is on the monotonic clock."""

    plan_id: int
    node: LiveNode
    attempt: int
    deadline_s: float


class CompactionOrders:
    """``orders_max``: the most that a node gets, whatever it has room for; 0: no such limit."""

    def __init__(self, clock: Clock, orders_max: int) -> None:
        self._clock = clock
        self._orders_max = orders_max
        self._given: dict[int, GivenOrder] = {}
        """The orders, by plan."""
        self._room: dict[int, int] = {}
        """How many compactions a node can run at a time, by epoch, as it last said."""
        self._asked_s: dict[int, float] = {}
        """When a node was last looked at, by epoch, or got the first of its orders."""

    def add(self, order: GivenOrder) -> None:
        self._given[order.plan_id] = order
        self._asked_s.setdefault(order.node.epoch, self._clock.monotonic_s())

    def get(self, plan_id: int) -> GivenOrder | None:
        return self._given.get(plan_id)

    def pop(self, plan_id: int) -> GivenOrder | None:
        return self._given.pop(plan_id, None)

    def node_ended(self, epoch: int) -> None:
        """Forget a registration and its orders."""
        self._given = {p: order for p, order in self._given.items() if order.node.epoch != epoch}
        self._room.pop(epoch, None)
        self._asked_s.pop(epoch, None)

    def late(self) -> list[int]:
        """Return the plans whose deadline has passed."""
        now_s = self._clock.monotonic_s()
        return [plan_id for plan_id, order in self._given.items() if now_s >= order.deadline_s]

    def due_s(self) -> list[float]:
        """Return the moments at which an order is late or a node is to be looked at."""
        looks_s = [at_s + LOOK_INTERVAL_S for at_s in self._asked_s.values()]
        return [order.deadline_s for order in self._given.values()] + looks_s

    def answered(self, node: LiveNode, room: int) -> None:
        """Note how many compactions the node can run at a time."""
        self._room[node.epoch] = room

    def busy(self) -> Counter[NodeID]:
        """Return how many orders each node has."""
        return Counter(order.node.node_id for order in self._given.values())

    def with_room(self, nodes: Iterable[LiveNode]) -> list[LiveNode]:
        """Return those of the nodes that may take one more order, in their order."""
        busy = self.busy()
        return [node for node in nodes if busy[node.node_id] < self._most(node)]

    def _most(self, node: LiveNode) -> int:
        room = max(1, self._room.get(node.epoch, _ROOM_UNTIL_KNOWN))
        return min(room, self._orders_max) if self._orders_max else room

    async def lost(self) -> list[GivenOrder]:
        """Ask the nodes whose turn it is, and return the orders that they do not have any more.

        A node that cannot be asked is asked again at its next turn.
        """
        now_s = self._clock.monotonic_s()
        busy = {order.node.epoch: order.node for order in self._given.values()}
        self._asked_s = {epoch: at_s for epoch, at_s in self._asked_s.items() if epoch in busy}
        missing: list[GivenOrder] = []
        for epoch, node in busy.items():
            if now_s < self._asked_s[epoch] + LOOK_INTERVAL_S:
                continue
            self._asked_s[epoch] = now_s
            try:
                work = await node.ports.orders.compactions(epoch)
            except ElanusError as error:
                _log.info("compactions of a data node not known", node=node.node_id, error=error.message)
                continue
            self.answered(node, work.room)
            held = set(work.attempts)
            missing += [o for o in self._given.values() if o.node.epoch == epoch and o.attempt not in held]
        return missing
