"""A run of a standalone with a serving process: a query node that mirrors the proxies' own, read by grant.

One proxy of such a run reads as a serving process does: from the mirror while it holds a grant, and else, or
if the read fails there, from the server's own node. Only seeds whose usual runs have one query node have such
runs, with the same clients and faults, and faults of their own in addition: the process is killed, and it is
cut off from the query coordinator.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa

from elanus.api.querycoord import QueryCoordApi
from elanus.api.querynode import NodeHits, NodeQuery, NodeSearch, QueryNodeApi
from elanus.api.serving import MirrorNode, ReadGrants
from elanus.core.errors import DeadlineExceeded, ElanusError
from elanus.core.ids import CollectionID, NodeID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.proxy.fanout.deadline import Patience
from elanus.querynode.node import QueryNode
from elanus.server.serving.members import Member, Members, SureGrants
from elanus.server.serving.reads import Grants
from elanus.sim.coop_threads import Turns
from elanus.sim.incarnation import Life
from elanus.sim.net import Handle, client
from elanus.sim.plan import MIRROR, ONE_NODE, USUAL, Profile, draw, draw_reading
from elanus.sim.reads_in_turns import ReadsInTurns
from elanus.sim.scenario import Fault, FaultKind, Scenario
from elanus.sim.trace import Trace

_CRASHES, _CUTS = 3, 4
_CUT_MAX_S = 4.0
_FIRST_S = 8.0
_FIRST_LOOK_S, _LAST_LOOK_S = 0.001, 0.05


def has_mirror(seed: int) -> bool:
    """Whether there is a run with a mirror for this seed."""
    return draw_reading(seed) == ONE_NODE


def draw_mirrored(seed: int, profile: Profile = USUAL) -> Scenario:
    """Draw the scenario of a seed with a mirror. Raises `ValueError` for a seed that has none."""
    if not has_mirror(seed):
        raise ValueError(f"seed {seed} has several query nodes: take a seed for which has_mirror holds")
    usual, chance = draw(seed, profile), random.Random(f"{seed}/mirror")

    def at_s() -> float:
        return chance.uniform(_FIRST_S, usual.work_s)

    crashes = [Fault(at_s(), FaultKind.CRASH, MIRROR) for _ in range(_CRASHES)]
    cuts = [
        Fault(at_s(), FaultKind.PARTITION, f"querycoord|{MIRROR}", round(chance.uniform(0, _CUT_MAX_S), 6))
        for _ in range(_CUTS)
    ]
    faults = sorted((*usual.faults, *crashes, *cuts), key=lambda f: (f.at_s, f.kind, f.target))
    return replace(usual, faults=tuple(faults))


class SimMirror(QueryNode):
    """The query node of a serving process, with its `elanus.api.serving.ReadGrants`."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.grants = Grants()

    async def grant(self, collection_id: CollectionID) -> None:
        await self.grants.grant(collection_id)

    async def withhold(self, collection_id: CollectionID) -> None:
        await self.grants.withhold(collection_id)


class SimMember:
    """One life of a serving process. Implements `elanus.server.serving.members.Ending`."""

    def __init__(self, life: Life, handle: Handle) -> None:
        self._life = life
        self._handle = handle
        self.node_id = mirror_id(life)
        self.ended = cast(asyncio.Future[int], life.ended)

    async def kill(self) -> None:
        self._life.kill()

    def of(self, querycoord: Life) -> MirrorNode:
        """The node, as this life of the coordinator commands it."""
        node = client(querycoord, self._handle, QueryNodeApi, self.node_id)
        grants = client(querycoord, self._handle, ReadGrants, self.node_id)
        return MirrorNode(node, SureGrants(grants, self))


def mirror_id(life: Life) -> NodeID:
    return NodeID(1000 + life.number)


def mirror_of(members: Members, node_id: NodeID, querycoord: Life) -> MirrorNode:
    return cast(SimMember, members[node_id]).of(querycoord)


def join(members: Members, life: Life, handle: Handle) -> None:
    members.join(mirror_id(life), cast(Member, SimMember(life, handle)))


class MirroredReads(ReadsInTurns):
    """The reads of a serving process. ``mirror``: its node, None while it does not run."""

    def __init__(
        self,
        mirror: Callable[[], SimMirror | None],
        current: Callable[[], QueryNode | None],
        querycoord: QueryCoordApi,
        turns: Turns,
        trace: Trace,
    ) -> None:
        super().__init__(current, querycoord, turns)
        self._mirror = mirror
        self._trace = trace

    def _granted(self, collection_id: CollectionID) -> SimMirror | None:
        mirror = self._mirror()
        return mirror if mirror is not None and collection_id in mirror.grants else None

    def _mirrored_time(self, collection_id: CollectionID) -> Timestamp:
        mirror = self._granted(collection_id)
        try:
            return NO_TIMESTAMP if mirror is None else mirror.service_time(collection_id)
        except ElanusError:
            return NO_TIMESTAMP

    def service_time(self, collection_id: CollectionID, patience: Patience) -> Timestamp:
        return self._mirrored_time(collection_id) or super().service_time(collection_id, patience)

    def search(self, request: NodeSearch, patience: Patience) -> NodeHits:
        found: NodeHits | None = self._read(request, lambda node: node.search(request))
        if found is None:
            self._await_main(request, patience)
            found = super().search(request, patience)
        return found

    def query(self, request: NodeQuery, patience: Patience) -> Mapping[str, pa.Array]:
        found: Mapping[str, pa.Array] | None = self._read(request, lambda node: node.query(request))
        if found is None:
            self._await_main(request, patience)
            found = super().query(request, patience)
        return found

    def count(self, request: NodeQuery, patience: Patience) -> int:
        found: int | None = self._read(request, lambda node: node.count(request))
        if found is None:
            self._await_main(request, patience)
            found = super().count(request, patience)
        return found

    def _read(self, request: NodeSearch | NodeQuery, read: Callable[[QueryNode], Any]) -> Any:
        """None if the read is to be passed on."""
        mirror = self._granted(request.collection_id)
        if mirror is None or self._mirrored_time(request.collection_id) < request.read_ts:
            return None
        try:
            found = read(mirror)
        except ElanusError:
            return None
        self._trace.count("reads of a mirror")
        return found

    def _await_main(self, request: NodeSearch | NodeQuery, patience: Patience) -> None:
        """The read is passed on. The server's own node may not have served its timestamp yet."""
        self._trace.count("reads passed on")
        pause_s = _FIRST_LOOK_S
        while super().service_time(request.collection_id, patience) < request.read_ts:
            if not patience.left_s():
                raise DeadlineExceeded(f"timestamp {request.read_ts} was not reached; retry")
            self._turns.sleep(pause_s)
            pause_s = min(_LAST_LOOK_S, 2 * pause_s)
