"""Collecting one read's answers from the nodes of a replica, until they are all there is.

A read is complete when every vchannel of the collection and every sealed segment of one version has been
searched: whoever answers says what it has searched and what its version consists of. Nothing has to be known
beforehand of who holds what, so it does not matter if that changes meanwhile. A node of the replica that is
lost before it has answered ends the read at once, with its name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from elanus.core.errors import ElanusError, Internal, Unavailable, all_error_types
from elanus.core.ids import NodeID, SegmentID
from elanus.proxy.replicas import Replica
from elanus.proxy.waits import Signal
from elanus.rpc.querychannel import DqResult, Handed
from elanus.rpc.reads import Answer, decode_answer


class Gathering:
    """One read under way. Results come in on the event loop, one thread waits.

    ``read``: its bytes, for nodes that fetch them. ``replica``: who is asked, as far as was known then.
    ``done``: what the thread waits for.
    """

    def __init__(self, read: bytes, replica: Replica, done: Signal) -> None:
        self.read = read
        self.info = replica.info
        self.lost_strangers = False
        """Whether a node was lost that was not known to belong to the replica; it may since."""
        self.handed: Handed | None = None
        """The request, once it is on its way."""
        self.service_ts = 0
        self.waited_s = 0.0
        """How long the node that waited longest has waited for the read's moment to be served."""
        self.given: dict[NodeID, bytes] = {}
        """Answers that came beside the channel, ahead of their results."""
        self._vchannels = frozenset(replica.info.vchannels)
        self._nodes = replica.nodes
        self._results: dict[NodeID, DqResult] = {}
        self._done = done
        self._error: ElanusError | None = None

    def take(self, result: DqResult) -> None:
        """A node's result; of one that has answered already it is ignored."""
        if self._done.is_set() or result.node_id in self._results:
            return
        kind, text = result.error
        if kind:
            self.fail(all_error_types().get(kind, Internal)(text))
            return
        self._results[result.node_id] = result
        if self._is_complete():
            self.service_ts = min(r.service_ts for r in self._results.values() if r.vchannels)
            self.waited_s = max(r.waited_s for r in self._results.values())
            self._done.set()

    def _is_complete(self) -> bool:
        results = self._results.values()
        if len({result.version for result in results}) > 1:
            self.fail(Unavailable("query nodes answered under different versions of the collection; retry"))
            return False
        vchannels = {v for result in results for v in result.vchannels}
        segments: set[SegmentID] = {s for result in results for s in result.segments}
        wanted = next(iter(results)).sealed
        return self._vchannels <= vchannels and segments.issuperset(wanted)

    def learn(self, nodes: Iterable[NodeID], lost: Collection[NodeID]) -> None:
        """Of nodes that belong to the replica by now, and of those that are gone."""
        self._nodes = self._nodes.union(nodes)
        for node_id in self._nodes.intersection(lost):
            self.lost(node_id)

    def look(self, alive: Collection[NodeID]) -> None:
        """Who of its nodes is not among these is gone, whether anybody has told of it or not."""
        for node_id in self._nodes.difference(alive):
            self.lost(node_id)

    def lost(self, node_id: NodeID) -> None:
        """A node is gone."""
        if node_id not in self._nodes:
            self.lost_strangers = True
        elif node_id not in self._results:
            self.fail(Unavailable(f"query node {node_id} went away before it had answered; retry"))

    def fail(self, error: ElanusError) -> None:
        if not self._done.is_set():
            self._error = error
            self._done.set()

    def wait(self, timeout_s: float) -> list[Answer] | None:
        """The nodes' answers; None when they are not complete in time. Raises what the read failed with."""
        if not self._done.wait(timeout_s):
            return None
        if self._error is not None:
            raise self._error
        return [
            decode_answer(result.answer or self.given.get(node_id, b""))
            for node_id, result in self._results.items()
        ]

    def missing(self) -> str:
        """What has not been searched yet, for an error text."""
        answered = ", ".join(map(str, sorted(self._results))) or "none"
        vchannels = {v for result in self._results.values() for v in result.vchannels}
        return (
            f"answers came from nodes: {answered}; vchannels missing: {sorted(self._vchannels - vchannels)}"
        )
