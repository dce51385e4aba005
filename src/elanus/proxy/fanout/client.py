"""Reads over many query nodes: one request on a replica's query channel, answers on the proxy's own channel.

The reading thread writes the request, waits until the answers are complete and merges them. It need not know
which nodes there are. With several replicas, reads take turns; a read that fails because a node or a channel
went away is tried once on each other replica before the client gets the error.

A weak read uses a timestamp that every replica serves already, so it does not wait for a node that lags. The
nodes report it with every answer; when the last answers are old, they are asked for nothing else. If one
replica does not report in time, the read goes to another.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa
import structlog

from elanus.api.query_channel import (
    PAYLOAD_MAX_BYTES,
    DqRequest,
    DqResult,
    QueryChannelInfo,
    QueryChannels,
    encode_message,
)
from elanus.api.querycoord import QueryCoordApi
from elanus.api.querynode import NodeHits, NodeQuery, NodeSearch, NodeStatistics, QueryNodeApi
from elanus.channels.read_codec import Answer, NodeCount, NodeProbe, Read, encode_read, read_ts_of
from elanus.core.aggregation import combined
from elanus.core.consistency import WIRE_EVENTUALLY
from elanus.core.errors import (
    ChannelLost,
    CollectionNotLoaded,
    DeadlineExceeded,
    ElanusError,
    Internal,
    SegmentUnreadable,
    Unavailable,
    VersionChanged,
)
from elanus.core.ids import CollectionID, NodeID
from elanus.core.nodes import Nodes
from elanus.core.schema import TIMESTAMP_FIELD
from elanus.core.term_statistics import TermStatistics
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.core.trail import current
from elanus.meta.tasks import cancel_and_wait
from elanus.proxy.fanout.answers import AnswerChannel
from elanus.proxy.fanout.blocking import ThreadWaits, Waits
from elanus.proxy.fanout.deadline import Patience
from elanus.proxy.fanout.first_rows import first_rows
from elanus.proxy.fanout.membership import KnownReplica, Replicas
from elanus.proxy.fanout.pending import Gathering
from elanus.proxy.fanout.reduce import merge_groups, merge_hits, merge_rows
from elanus.proxy.fanout.served import ServiceTimes

_CONFIRM_S = 0.2
"""When a read has had no answer for this long, the broker is asked whether it received the request."""
_LOOK_S = 1.0
"""After that, the read's query channel is checked once per this interval."""
_TICK_LOOK_S = 0.02
"""How often the nodes are asked for their service time while there is none yet."""
_log = structlog.get_logger("proxy")
T = TypeVar("T")


class FanOut:
    """Implements `elanus.proxy.role.read_path.ReadNodes` and `ReadPayloads`.

    ``results``: this proxy's own answer channel. ``timeout_s``: how long to wait for coordinators. ``nodes``:
    the query nodes that are alive; without it, `node_lost` must be called. ``waits``: how reads wait; the
    default is for threads alongside the event loop. Reads may come from any thread; everything else runs on
    the loop that this is created on.
    """

    def __init__(
        self,
        node_id: NodeID,
        results: str,
        channels: QueryChannels,
        querycoord: QueryCoordApi,
        timeout_s: float,
        nodes: Nodes[QueryNodeApi] | None = None,
        waits: Waits | None = None,
    ) -> None:
        self._node_id = node_id
        self._answers = AnswerChannel(results, channels, self._take)
        self._channels = channels
        self._timeout_s = timeout_s
        self._turns = itertools.count()
        self._replicas = Replicas(querycoord)
        self._refreshing: dict[CollectionID, asyncio.Task[object]] = {}
        self._waits = waits or ThreadWaits(asyncio.get_running_loop())
        self._served = ServiceTimes(
            self._waits.now_s, lambda collection_id: self._replicas.known(collection_id) is not None
        )
        self._nodes: Nodes[QueryNodeApi] | None = nodes
        self._alive: frozenset[NodeID] = frozenset()
        self._end_watching: Callable[[], None] = lambda: None
        self._is_stopped = False

    async def start(self) -> None:
        await self._answers.start()
        if self._nodes is not None:
            self._alive = frozenset(self._nodes)
            self._end_watching = self._nodes.on_change(self._look)

    async def stop(self) -> None:
        """Fail the reads under way and all later ones: a proxy whose lease is over may still get reads."""
        self._is_stopped = True
        self._end_watching()
        self._end_watching = lambda: None  # a proxy that does not start stops twice
        await cancel_and_wait(*self._refreshing.values())
        await self._answers.stop(_stopped())

    # notifications

    def _look(self) -> None:
        there = frozenset(self._nodes or ())
        for node_id in self._alive - there:
            self.node_lost(node_id)
        self._alive = there

    def node_lost(self, node_id: NodeID) -> None:
        """A query node's session ended."""
        self._replicas.lose(node_id)
        for gathering in self._answers.awaited():
            gathering.lost(node_id)

    def forget(self, collection_id: CollectionID) -> None:
        """The collection was released or its channels changed: there may be no node left to answer."""
        self._replicas.forget(collection_id)
        self._served.forget(collection_id)
        for gathering in self._answers.awaited():
            if gathering.info.collection_id == collection_id:
                gathering.fail(ChannelLost(f"query channel {gathering.info.channel} was closed; retry"))

    async def fetch_read(self, request_id: int) -> bytes:
        gathering = self._answers.find(request_id)
        if gathering is None:
            raise Unavailable(f"read {request_id} was given up by its proxy")
        return gathering.read

    async def give_answer(self, request_id: int, node_id: NodeID, answer: bytes) -> None:
        gathering = self._answers.find(request_id)
        if gathering is not None:
            gathering.given[node_id] = answer

    def _take(self, gathering: Gathering, result: DqResult) -> None:
        gathering.take(result)
        if self._replicas.is_old(gathering.info, result.version):
            self._refresh_soon(gathering.info.collection_id)

    def _refresh_soon(self, collection_id: CollectionID) -> None:
        """Fetch the nodes of the new version, so that the loss of one ends its reads at once."""
        if collection_id not in self._refreshing:
            task = self._refreshing[collection_id] = asyncio.create_task(self._refresh(collection_id))
            task.add_done_callback(lambda _: self._refreshing.pop(collection_id))

    async def _refresh(self, collection_id: CollectionID) -> Mapping[str, int] | None:
        """Return the versions of the replicas by channel; None: querycoord could not be asked."""
        try:
            replicas = await self._replicas.ask(collection_id)
        except CollectionNotLoaded:
            return {}
        except ElanusError as error:  # querycoord may be about to be replaced
            _log.info("query channel not looked up", collection=collection_id, error=error.message)
            return None
        nodes = {replica.info.channel: replica.nodes for replica in replicas}
        for gathering in self._answers.awaited():
            gathering.learn(nodes.get(gathering.info.channel, ()), self._replicas.lost)
        return {replica.info.channel: replica.info.version for replica in replicas}

    async def _fail_when_lost(self, gathering: Gathering, info: QueryChannelInfo) -> None:
        """Fail a read that has waited long when an answer can no longer arrive.

        Nobody answers a request written to a channel that no longer exists. Nor does a lost node that this
        proxy could not notice: one that joined the replica after this proxy had last asked for its nodes, or
        that was gone before this proxy first looked.
        """
        if gathering.handed is not None:
            try:
                await self._channels.confirm(gathering.handed)
            except ElanusError as error:
                gathering.fail(error)
                return
        while True:
            await asyncio.sleep(_LOOK_S)
            versions = await self._refresh(info.collection_id)
            if versions is None:
                continue
            if info.channel not in versions:
                gathering.fail(ChannelLost(f"query channel {info.channel} has been replaced; retry"))
                return
            if self._nodes is not None:
                gathering.look(self._nodes)
            if gathering.lost_strangers and versions[info.channel] != info.version:
                gathering.fail(Unavailable("a query node that may have been asked went away; retry"))
                return

    # reads, from any thread

    def service_time(self, collection_id: CollectionID, patience: Patience) -> Timestamp:
        """Return the newest timestamp that all replicas serve; of those that answer, if some do not.

        Raises `CollectionNotLoaded`, and `Unavailable` or `DeadlineExceeded` if no replica answers.
        """
        channels = [replica.info.channel for replica in self._replicas_of(collection_id)]
        known = self._served.lowest(collection_id, channels)
        if known is not None:
            return known
        try:
            return self._probe(collection_id, patience)
        except ChannelLost:
            return self._probe(collection_id, patience)

    def wait_service_time(self, collection_id: CollectionID, ts: Timestamp, patience: Patience) -> None:
        """Wait until the nodes serve anything, if the read would take whatever that is.

        The nodes wait for any other timestamp themselves. Raises as `service_time` does.
        """
        self._replicas_of(collection_id)
        while ts <= WIRE_EVENTUALLY and self.service_time(collection_id, patience) == NO_TIMESTAMP:
            if not patience.left_s():
                raise DeadlineExceeded(
                    f"collection {collection_id} got no time tick within the time of the read; retry"
                )
            with patience.waiting():
                self._waits.sleep(_TICK_LOOK_S)

    def _probe(self, collection_id: CollectionID, patience: Patience) -> Timestamp:
        """Ask the nodes of all replicas for their service time. Raises as `service_time` does."""
        data = encode_read(NodeProbe(collection_id))
        failures: list[Unavailable] = []
        with contextlib.ExitStack() as asking:
            asked: list[tuple[QueryChannelInfo, Gathering]] = []
            for replica in self._replicas_of(collection_id):
                try:
                    asked.append((replica.info, asking.enter_context(self._asking(replica, data, patience))))
                except Unavailable as error:
                    failures.append(error)
            # A replica that does not answer soon is waited for only if no other does.
            found = self._served.collect(asked, lambda g, _: g.wait(_CONFIRM_S), failures)
            if not found:
                found = self._served.collect(asked, lambda g, i: self._wait(g, i, patience), failures)
        if failures:
            self._replicas.forget(collection_id)
        if found:
            return min(found)
        if failures:
            raise next((error for error in failures if isinstance(error, ChannelLost)), failures[-1])
        raise DeadlineExceeded(
            f"the query nodes of collection {collection_id} did not report up to which timestamp they serve "
            f"within {patience.timeout_s:g} s; retry"
        )

    def search(self, request: NodeSearch, patience: Patience) -> NodeHits:
        parts = self._read(request.collection_id, request, patience)
        hits = [_as(NodeHits, part) for part in parts]
        if request.grouping is not None:
            return merge_groups(hits, request.grouping, request.k)
        return merge_hits(hits, request.k)

    def query(self, request: NodeQuery, patience: Patience) -> Mapping[str, pa.Array]:
        if request.aggregation is not None:
            answers = self._read(request.collection_id, request, patience)
            return combined([_as(dict, part) for part in answers], request.aggregation)
        wanted = replace(request, output_fields=(*request.output_fields, TIMESTAMP_FIELD))
        if request.order and request.limit is not None:
            return first_rows(lambda of: self._rows(of, patience), wanted)
        parts = self._rows(wanted, patience)
        key = next(iter(parts[0]))  # a node returns the primary key first
        return merge_rows(parts, key, request.limit, request.order)

    def _rows(self, request: NodeQuery, patience: Patience) -> list[dict[str, pa.Array]]:
        return [_as(dict, part) for part in self._read(request.collection_id, request, patience)]

    def statistics(self, request: NodeStatistics, patience: Patience) -> TermStatistics:
        parts = self._read(request.collection_id, request, patience)
        return sum((_as(TermStatistics, part) for part in parts), TermStatistics.none(len(request.terms)))

    def count(self, request: NodeQuery, patience: Patience) -> int:
        parts = self._read(request.collection_id, NodeCount(request), patience)
        return sum(_as(int, part) for part in parts)

    def _read(self, collection_id: CollectionID, read: Read, patience: Patience) -> list[Answer]:
        """Ask the replicas in turn until one answers; once more if the known replicas were out of date."""
        data, read_ts = encode_read(read), read_ts_of(read)
        try:
            return self._ask_in_turn(collection_id, data, read_ts, patience)
        except ChannelLost:
            return self._ask_in_turn(collection_id, data, read_ts, patience)

    def _ask_in_turn(
        self, collection_id: CollectionID, data: bytes, read_ts: Timestamp, patience: Patience
    ) -> list[Answer]:
        """Raises `ChannelLost` when any replica failed with it: the channel may have been replaced.

        A replica that cannot read a segment does not end the read: another may have it in memory.
        """
        replicas = self._replicas_of(collection_id)
        failures: list[ElanusError] = []
        for replica in self._served.in_turn(replicas, next(self._turns), read_ts):
            try:
                return self._ask(replica, data, patience)
            except Unavailable as error:
                self._replicas.forget(collection_id)
                failures.append(error)
            except SegmentUnreadable as error:
                failures.insert(0, error)  # a retry may find the others again
        raise next((error for error in failures if isinstance(error, ChannelLost)), failures[-1])

    def _ask(self, replica: KnownReplica, data: bytes, patience: Patience) -> list[Answer]:
        """Send the read; send it again each time that nodes gave it up for a version change."""
        while True:
            began_s = self._waits.now_s()
            try:
                return self._ask_once(replica, data, patience)
            except VersionChanged as error:
                patience.waited_s += self._waits.now_s() - began_s
                if not patience.left_s():
                    raise DeadlineExceeded(f"{error.message} with a longer timeout") from error

    def _ask_once(self, replica: KnownReplica, data: bytes, patience: Patience) -> list[Answer]:
        info = replica.info
        with self._asking(replica, data, patience) as gathering:
            answers = self._wait(gathering, info, patience)
        if answers is None:
            raise DeadlineExceeded(
                f"the query nodes of collection {info.collection_id} did not all answer within "
                f"{patience.timeout_s:g} s ({gathering.missing()}); retry"
            )
        patience.waited_s += gathering.waited_s
        trail = current()
        if trail is not None:
            trail.received.extend(gathering.reports())
        self._served.answered(info, Timestamp(gathering.service_ts))
        return answers

    @contextlib.contextmanager
    def _asking(self, replica: KnownReplica, data: bytes, patience: Patience) -> Iterator[Gathering]:
        """Send a read to a replica, and collect its answers inside the block.

        Raises `Unavailable` if the replica cannot answer.
        """
        with self._answers.expecting(Gathering(data, replica, self._waits.signal())) as (number, gathering):
            # Checked after the read is registered: either these checks end it, or `stop` and `node_lost` do.
            if self._is_stopped:
                raise _stopped()
            self._replicas.check(replica)
            request = DqRequest(
                number,
                self._node_id,
                self._answers.name,
                replica.info.collection_id,
                patience.left_s(),
                data if len(data) <= PAYLOAD_MAX_BYTES else b"",
                current() is not None,
            )
            self._waits.begin(self._hand_over(replica.info.channel, encode_message(request), gathering))
            yield gathering

    def _wait(self, gathering: Gathering, info: QueryChannelInfo, patience: Patience) -> list[Answer] | None:
        answers = gathering.wait(min(_CONFIRM_S, patience.left_s()))
        if answers is not None:
            return answers
        stop_looking = self._waits.begin(self._fail_when_lost(gathering, info))
        try:
            return gathering.wait(patience.left_s())
        finally:
            stop_looking()

    async def _hand_over(self, channel: str, message: bytes, gathering: Gathering) -> None:
        """Send the request. Answers show that the broker has it; the broker is asked only if none arrive."""
        try:
            gathering.handed = await self._channels.hand_over(channel, message)
        except ElanusError as error:
            gathering.fail(error)

    def _replicas_of(self, collection_id: CollectionID) -> tuple[KnownReplica, ...]:
        """Raises `CollectionNotLoaded`."""
        replicas = self._replicas.known(collection_id)
        return self._on_loop(self._replicas.ask(collection_id)) if replicas is None else replicas

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._waits.run(work, self._timeout_s)
        except TimeoutError:
            raise DeadlineExceeded(f"no coordinator answered within {self._timeout_s:g} s; retry") from None


def _stopped() -> Unavailable:
    return Unavailable("the proxy is stopping; use another")


def _as(kind: type[T], answer: Answer) -> T:
    if not isinstance(answer, kind):
        raise Internal(f"a query node answered with {type(answer).__name__}, not {kind.__name__}")
    return answer
