"""Collecting one read's answers from the nodes of a replica until they are complete.

A read is complete when every vchannel of the collection and every sealed segment of one version has been
searched. Each answer says what the node has searched and what its version consists of. The proxy need not
know beforehand which node holds what, so it does not matter if that changes meanwhile. When a node of the
replica is lost before it has answered, the read ends at once with an error that names the node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from elanus.api.query_channel import DqResult, Handed
from elanus.channels.read_codec import Answer, decode_answer
from elanus.core.errors import ElanusError, Internal, Unavailable, all_error_types
from elanus.core.explanation import NodeReport
from elanus.core.ids import NodeID, SegmentID
from elanus.proxy.fanout.blocking import Signal
from elanus.proxy.fanout.membership import KnownReplica


class Gathering:
    """One read under way. Results arrive on the event loop; one thread waits.

    ``read``: its bytes, for nodes that fetch them. ``replica``: the replica asked, as known at the start.
    ``done``: the signal that the thread waits for.
    """

    def __init__(self, read: bytes, replica: KnownReplica, done: Signal) -> None:
        self.read = read
        self.info = replica.info
        self.lost_strangers = False
        """Whether a node outside the known replica was lost; it may have joined the replica meanwhile."""
        self.handed: Handed | None = None
        """The request, once it is on its way."""
        self.service_ts = 0
        self.waited_s = 0.0
        """The longest time that any node has waited for the read's timestamp to be served."""
        self.given: dict[NodeID, bytes] = {}
        """Answers that arrived by RPC instead of over the channel, ahead of their results."""
        self._vchannels = frozenset(replica.info.vchannels)
        self._nodes = replica.nodes
        self._results: dict[NodeID, DqResult] = {}
        self._done = done
        self._error: ElanusError | None = None

    def take(self, result: DqResult) -> None:
        """Add a node's result. It is ignored if the node has answered already."""
        if self._done.is_set() or result.node_id in self._results:
            return
        kind, text = result.error
        if kind:
            self.fail(all_error_types().get(kind, Internal)(text))
            return
        self._results[result.node_id] = result
        if self._is_complete():
            serving = [r for r in self._results.values() if r.vchannels or r.segments]
            self.service_ts = min(r.service_ts for r in serving)
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
        """Add the nodes that belong to the replica by now, and apply the losses among its nodes."""
        self._nodes = self._nodes.union(nodes)
        for node_id in self._nodes.intersection(lost):
            self.lost(node_id)

    def look(self, alive: Collection[NodeID]) -> None:
        """Treat the replica's nodes that are not ``alive`` as lost, even if no loss was reported."""
        for node_id in self._nodes.difference(alive):
            self.lost(node_id)

    def lost(self, node_id: NodeID) -> None:
        """Note that a node is gone; fail the read if its answer was still needed."""
        if node_id not in self._nodes:
            self.lost_strangers = True
        elif node_id not in self._results:
            self.fail(Unavailable(f"query node {node_id} went away before it had answered; retry"))

    def fail(self, error: ElanusError) -> None:
        if not self._done.is_set():
            self._error = error
            self._done.set()

    def wait(self, timeout_s: float) -> list[Answer] | None:
        """Return the nodes' answers; None if incomplete in time. Raises the error the read failed with."""
        if not self._done.wait(timeout_s):
            return None
        if self._error is not None:
            raise self._error
        return [
            decode_answer(result.answer or self.given.get(node_id, b""))
            for node_id, result in self._results.items()
        ]

    def reports(self) -> Iterator[NodeReport]:
        """The nodes' reports of what they did, for a read that is followed."""
        return (result.report for result in self._results.values() if result.report is not None)

    def missing(self) -> str:
        """Describe what has not been searched yet, for an error text."""
        answered = ", ".join(map(str, sorted(self._results))) or "none"
        vchannels = {v for result in self._results.values() for v in result.vchannels}
        return (
            f"answers came from nodes: {answered}; vchannels missing: {sorted(self._vchannels - vchannels)}"
        )
