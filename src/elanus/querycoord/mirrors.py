"""Mirrors: nodes that hold every loaded collection once more, for the readers of their own process.

A standalone server may have several serving processes (`elanus.server.serving`). The query node of each one
is a *mirror*: a full copy of what the server's own query node serves. Clients see no further replicas. A
mirror that is slow, behind or gone delays nobody: reads there are passed on to the main process meanwhile.

A mirror is brought up by the steps that bring up a replica, with two differences (`MirrorLoader`). It decides
nothing: the moments of imported rows and of writes are those that the clients' replica, its *lead*, has
announced (`elanus.querycoord.visible_from`). And it is recorded nowhere: a new coordinator has each mirror
load everything again.

Whether reads may use a mirror is the coordinator's decision, collection by collection: it gives a grant
(`elanus.api.serving`) after the mirror has done a whole round for what the lead has announced, and takes it
back before anything becomes visible or invisible that a read on the mirror would miss: another set of loaded
partitions, a release, a new moment. All other changes (a handoff, the exchange for an indexed copy, a
compaction) leave what reads see as it is, and each mirror follows them in its own time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from itertools import chain

import structlog

from elanus.api.querynode import QueryNodePulse, QueryNodeStatus
from elanus.api.recovery import VchannelRecovery
from elanus.api.serving import EVERY_COLLECTION, MirrorNode
from elanus.core.errors import ElanusError, NotReady
from elanus.core.ids import CollectionID, NodeID, SegmentID
from elanus.core.nodes import Nodes
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.meta.tasks import cancel_and_wait
from elanus.querycoord.fleet import OneNode
from elanus.querycoord.groups import ResourceGroups
from elanus.querycoord.loader import CollectionLoader, QueryDependencies
from elanus.querycoord.replica import Replica
from elanus.querycoord.replica_records import ReplicaRecord
from elanus.querycoord.served import Served
from elanus.querycoord.served_watch import ServedWatch
from elanus.querycoord.state import Load, LoadState
from elanus.querycoord.target import Target
from elanus.querycoord.visible_from import Settled, settled

_LOOK_S = 1.0
_log = structlog.get_logger("querycoord")


class Unrecorded(LoadState):
    """A `LoadState` that keeps nothing: what a mirror serves is found out again by a new coordinator."""

    def __init__(self) -> None:
        """There is no store."""

    async def replicas(self, collection_id: CollectionID) -> list[ReplicaRecord]:
        return []

    async def put_replica(self, record: ReplicaRecord) -> None:
        """Keep nothing."""

    async def remove_replica(self, record: ReplicaRecord) -> None:
        """Nothing was kept."""


class MirrorLoader(CollectionLoader):
    """Has one mirror serve what its lead serves. After a change of the schema another loader is the lead."""

    def __init__(self, lead: CollectionLoader, mirror: Mirror) -> None:
        super().__init__(
            _load_of(lead),
            mirror.peers,
            mirror.state,
            mirror.groups,
            NO_TIMESTAMP,
            mirror.watch.reconciled,
            mirror.recovering,
        )
        self._mirror = mirror
        self._is_late = False

    async def _reconcile(self) -> int:
        mirror = self._mirror
        await mirror.released(self.collection_id)
        lead = mirror.leads.get(self.collection_id)
        if lead is None or not lead.is_settled:
            return 0  # its next round wakes this one
        round_number = mirror.withheld.get(self.collection_id, 0)
        leads_load = lead.load
        if _load_of(lead) != self.load:
            self.change(_load_of(lead), NO_TIMESTAMP)
        self._is_late = False
        segments = await super()._reconcile()
        is_current = lead.is_settled and lead.load is leads_load and not self._is_late
        is_led = mirror.leads.get(self.collection_id) is lead
        if is_current and is_led and mirror.loaders.get(self.collection_id) is self:
            await mirror.grant(self.collection_id, round_number)
        return segments

    async def _bring_up(
        self,
        replica: Replica,
        group: tuple[NodeID, ...],
        target: Target,
        load: Load,
        served: Served,
        moments: Settled,
    ) -> bool:
        self._is_late = await super()._bring_up(replica, group, target, load, served, moments)
        return self._is_late

    def _settled(self, found: Collection[SegmentID]) -> Settled:
        """The lead's decisions count. Where it has made none the moment is open, whichever partitions can be
        read, and the mirror has to wait (`_stamp`)."""
        lead = self._mirror.leads.get(self.collection_id)
        leads = lead.records() if lead else []
        named = {s for record in leads for s in record.info.sealed}
        return replace(settled([*self.records(), *leads], {*found, *named}), partitions=None)

    async def _stamp(self) -> Timestamp:
        raise NotReady(
            f"collection {self.collection_id} has rows whose moment the server's own query node decides; "
            "the copy in this serving process follows"
        )


def _load_of(lead: CollectionLoader) -> Load:
    return replace(lead.load, replicas=1, groups=())


class Mirror:
    """One mirror. ``leads``: the loaders of the clients' replicas.

    ``withheld``: how often its grant for a collection was taken back.
    """

    def __init__(
        self,
        node_id: NodeID,
        mirror: MirrorNode,
        peers: QueryDependencies,
        leads: Mapping[CollectionID, CollectionLoader],
    ) -> None:
        fleet = OneNode(node_id, mirror.node)
        self.node_id = node_id
        self.peers = replace(peers, fleet=fleet, proxies={}, mirrors=None)
        self.state = Unrecorded()
        self.groups = ResourceGroups(self.state, fleet)
        self.loaders: dict[CollectionID, CollectionLoader] = {}
        self.watch = ServedWatch(self.loaders)
        self.recovering: dict[CollectionID, tuple[VchannelRecovery, ...]] = {}
        self.withheld: dict[CollectionID, int] = {}
        self.pulse: QueryNodePulse | None = None
        self._node = mirror.node
        self._grants = mirror.grants
        self.leads = leads
        self._granting = asyncio.Lock()
        self._releases: dict[CollectionID, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"mirror {self.node_id}")

    async def stop(self) -> None:
        await cancel_and_wait(*self._releases.values(), self._task)
        await asyncio.gather(*(loader.stop() for loader in tuple(self.loaders.values())))

    def follow(self, collection_id: CollectionID) -> None:
        """Have the mirror serve what the lead serves by now."""
        lead = self.leads.get(collection_id)
        if lead is None or self._task is None:
            return
        loader = self.loaders.get(collection_id)
        if loader is None:
            loader = self.loaders[collection_id] = MirrorLoader(lead, self)
            loader.start()
        else:
            loader.wake()

    async def grant(self, collection_id: CollectionID, withheld: int) -> None:
        """Let reads use the mirror, unless the grant was taken back since ``withheld`` was read."""
        async with self._granting:
            if self.withheld.get(collection_id, 0) == withheld:
                await self._grants.grant(collection_id)

    async def withhold(self, collection_id: CollectionID) -> None:
        """Return when no further read begins to look at the collection on the mirror."""
        self.withheld[collection_id] = self.withheld.get(collection_id, 0) + 1
        async with self._granting:
            await self._grants.withhold(collection_id)

    async def release(self, collection_id: CollectionID) -> None:
        """Withhold the collection, and begin to release it."""
        loader = self.loaders.pop(collection_id, None)
        await self.withhold(collection_id)
        if loader is not None:
            await loader.stop()
        if collection_id not in self.loaders:  # none that may have read the number
            self.withheld.pop(collection_id, None)
        self._begin_release(collection_id)

    async def released(self, collection_id: CollectionID) -> None:
        """Wait for a release that was begun."""
        release = self._releases.get(collection_id)
        if release is not None:
            await asyncio.wait([release])

    async def status(self) -> QueryNodeStatus:
        return await self._node.status()

    def _begin_release(self, collection_id: CollectionID) -> None:
        if collection_id not in self._releases:
            task = asyncio.create_task(self._release(collection_id), name=f"release {collection_id}")
            self._releases[collection_id] = task
            task.add_done_callback(lambda _: self._releases.pop(collection_id, None))

    async def _release(self, collection_id: CollectionID) -> None:
        try:
            await self._node.release_collection(collection_id)
        except ElanusError as error:
            _log.info("release not delivered to mirror", mirror=self.node_id, error=error.message)

    async def _run(self) -> None:
        """Begin without any grant: those of an earlier coordinator are not known. Then watch the node."""
        await self._grants.withhold(EVERY_COLLECTION)
        for collection_id in tuple(self.leads):
            self.follow(collection_id)
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                pulse = await self._node.pulse()
            except ElanusError as error:
                _log.info("mirror not reached", mirror=self.node_id, error=error.message)
                continue
            self.pulse = pulse
            self.watch.check({self.node_id: pulse}, self.groups.view())
            for collection_id in pulse.versions.keys() - self.loaders.keys():
                self._begin_release(collection_id)


class Mirrors:
    """The mirrors of a server. ``nodes``: None if there are none and never will be."""

    def __init__(
        self,
        nodes: Nodes[MirrorNode] | None,
        peers: QueryDependencies,
        leads: Mapping[CollectionID, CollectionLoader],
    ) -> None:
        self._nodes = nodes
        self._peers = peers
        self._leads = leads
        self._mirrors: dict[NodeID, Mirror] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._unfollow: list[Callable[[], None]] = []

    def start(self) -> None:
        if self._nodes is not None:
            self._unfollow.append(self._nodes.on_change(self._follow_nodes))
            self._follow_nodes()

    async def stop(self) -> None:
        for unfollow in self._unfollow:
            unfollow()
        mirrors = tuple(self._mirrors.values())
        self._mirrors.clear()
        if mirrors or self._ending:
            await asyncio.gather(*(mirror.stop() for mirror in mirrors), *self._ending)

    def follow(self, collection_id: CollectionID) -> None:
        """The collection's lead has done a round."""
        for mirror in self._mirrors.values():
            mirror.follow(collection_id)

    async def withhold(self, collection_id: CollectionID) -> None:
        """Return when reads of the collection are answered by the lead alone."""
        if self._mirrors:
            await asyncio.gather(*(mirror.withhold(collection_id) for mirror in self._mirrors.values()))

    async def release(self, collection_id: CollectionID) -> None:
        """The same, and have the mirrors release it."""
        if self._mirrors:
            await asyncio.gather(*(mirror.release(collection_id) for mirror in self._mirrors.values()))

    def alive(self) -> tuple[NodeID, ...]:
        return tuple(self._mirrors)

    def pulses(self) -> dict[NodeID, QueryNodePulse]:
        """Return the latest of each mirror."""
        return {n: mirror.pulse for n, mirror in self._mirrors.items() if mirror.pulse is not None}

    def recovering(self) -> Iterator[VchannelRecovery]:
        """Return the vchannels that mirrors are about to read."""
        return chain.from_iterable(of for m in self._mirrors.values() for of in m.recovering.values())

    async def statuses(self) -> list[QueryNodeStatus]:
        """Raises `ElanusError` if a mirror does not answer."""
        if not self._mirrors:
            return []
        return await asyncio.gather(*(mirror.status() for mirror in self._mirrors.values()))

    def _follow_nodes(self) -> None:
        assert self._nodes is not None
        for node_id in self._mirrors.keys() - self._nodes.keys():
            ending = asyncio.create_task(self._mirrors.pop(node_id).stop(), name=f"end mirror {node_id}")
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        for node_id in self._nodes.keys() - self._mirrors.keys():
            mirror = Mirror(node_id, self._nodes[node_id], self._peers, self._leads)
            self._mirrors[node_id] = mirror
            mirror.start()
