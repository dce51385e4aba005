"""Reads over many query nodes: one request on a replica's query channel, answers on the proxy's own channel.

The reading thread writes the request, waits until the answers are complete and merges them. It need not know
which nodes there are. With several replicas, reads take turns; a read that fails because a node or a channel
went away is tried once on each other replica before the client gets the error.

A weak read uses the newest timestamp that is known to be served. That is known from the answers to earlier
reads and, when those are old, from the ticks that rootcoord has written.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa
import structlog

from elanus.api.query_channel import (
    PAYLOAD_MAX_BYTES,
    DqRequest,
    QueryChannelInfo,
    QueryChannels,
    decode_result,
    encode_message,
)
from elanus.api.querycoord import QueryCoordApi
from elanus.api.querynode import NodeHits, NodeQuery, NodeSearch, QueryNodeApi
from elanus.api.rootcoord import RootCoordApi
from elanus.channels.read_codec import Answer, NodeCount, Read, encode_read
from elanus.core.channels import pchannel_of
from elanus.core.errors import (
    ChannelLost,
    CollectionNotLoaded,
    DeadlineExceeded,
    ElanusError,
    Internal,
    Unavailable,
)
from elanus.core.ids import CollectionID, NodeID
from elanus.core.nodes import Nodes
from elanus.core.schema import TIMESTAMP_FIELD
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.proxy.fanout.blocking import ThreadWaits, Waits
from elanus.proxy.fanout.deadline import Patience
from elanus.proxy.fanout.membership import KnownReplica, Replicas
from elanus.proxy.fanout.pending import Gathering
from elanus.proxy.fanout.reduce import merge_hits, merge_rows

_FRESH_S = 0.5
"""For a weak read, a known service time older than this is looked up again."""
_RETRY_PAUSE_S = 0.5
_CONFIRM_S = 0.2
"""When a read has had no answer for this long, the broker is asked whether it received the request."""
_LOOK_S = 1.0
"""After that, the read's query channel is checked once per this interval."""
_TICK_LOOK_S = 0.02
"""How often the ticks are polled while there is none yet."""
_log = structlog.get_logger("proxy")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Served:
    ts: Timestamp
    seen_s: float


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
        rootcoord: RootCoordApi,
        timeout_s: float,
        nodes: Nodes[QueryNodeApi] | None = None,
        waits: Waits | None = None,
    ) -> None:
        self._node_id = node_id
        self._results = results
        self._names = (f"{results}-{number}" for number in itertools.count(2))
        """Names for the answer channels that replace this one, one after the other."""
        self._removing: set[asyncio.Task[None]] = set()
        self._channels = channels
        self._rootcoord = rootcoord
        self._timeout_s = timeout_s
        self._numbers = itertools.count(1)
        self._turns = itertools.count()
        self._gatherings: dict[int, Gathering] = {}
        self._replicas = Replicas(querycoord)
        self._refreshing: dict[CollectionID, asyncio.Task[object]] = {}
        self._served: dict[CollectionID, _Served] = {}
        self._lock = threading.Lock()
        self._waits = waits or ThreadWaits(asyncio.get_running_loop())
        self._task: asyncio.Task[None] | None = None
        self._nodes: Nodes[QueryNodeApi] | None = nodes
        self._alive: frozenset[NodeID] = frozenset()
        self._end_watching: Callable[[], None] = lambda: None
        self._is_stopped = False

    async def start(self) -> None:
        await self._channels.create(self._results)
        if self._nodes is not None:
            self._alive = frozenset(self._nodes)
            self._end_watching = self._nodes.on_change(self._look)
        self._task = asyncio.create_task(self._receive(), name="read results")

    async def stop(self) -> None:
        """Fail the reads under way and all later ones: a proxy whose lease is over may still get reads."""
        self._is_stopped = True
        self._end_watching()
        tasks = [*self._refreshing.values(), *self._removing, *([self._task] if self._task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._remove(self._results)
        for gathering in tuple(self._gatherings.values()):
            gathering.fail(_stopped())

    # notifications

    def _look(self) -> None:
        there = frozenset(self._nodes or ())
        for node_id in self._alive - there:
            self.node_lost(node_id)
        self._alive = there

    def node_lost(self, node_id: NodeID) -> None:
        """A query node's session ended."""
        self._replicas.lose(node_id)
        for gathering in tuple(self._gatherings.values()):
            gathering.lost(node_id)

    def forget(self, collection_id: CollectionID) -> None:
        """The collection was released or its channels changed: there may be no node left to answer."""
        self._replicas.forget(collection_id)
        self._served.pop(collection_id, None)
        for gathering in tuple(self._gatherings.values()):
            if gathering.info.collection_id == collection_id:
                gathering.fail(ChannelLost(f"query channel {gathering.info.channel} was closed; retry"))

    async def fetch_read(self, request_id: int) -> bytes:
        return self._gathering(request_id).read

    async def give_answer(self, request_id: int, node_id: NodeID, answer: bytes) -> None:
        gathering = self._gatherings.get(request_id)
        if gathering is not None:
            gathering.given[node_id] = answer

    def _gathering(self, request_id: int) -> Gathering:
        gathering = self._gatherings.get(request_id)
        if gathering is None:
            raise Unavailable(f"read {request_id} was given up by its proxy")
        return gathering

    async def _receive(self) -> None:
        while True:
            try:
                reader = await self._channels.open_reader(self._results, 0)
                while True:
                    _, data = await reader.next()
                    result = decode_result(data)
                    gathering = self._gatherings.get(result.request_id)
                    if gathering is not None:  # otherwise it is late: its read was given up
                        gathering.take(result)
                        if self._replicas.is_old(gathering.info, result.version):
                            self._refresh_soon(gathering.info.collection_id)
            except ElanusError as error:
                _log.warning("answer channel lost", error=error.message)
                self._fail_reads()
                await asyncio.sleep(_RETRY_PAUSE_S)
                await self._recreate()

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
        for gathering in tuple(self._gatherings.values()):
            gathering.learn(nodes.get(gathering.info.channel, ()), self._replicas.lost)
        return {replica.info.channel: replica.info.version for replica in replicas}

    def _fail_reads(self) -> None:
        """Fail all reads under way: their answers may have found no channel."""
        for pending in tuple(self._gatherings.values()):
            pending.fail(ChannelLost("the proxy's channel of answers was lost; retry"))

    async def _recreate(self) -> None:
        """Create a channel under a new name: the old one stays taken while its broker server is down."""
        removing = asyncio.create_task(self._remove(self._results), name="remove results")
        self._removing.add(removing)
        removing.add_done_callback(self._removing.discard)
        self._results = next(self._names)
        try:
            await self._channels.create(self._results)
        except ElanusError as error:
            _log.info("answer channel not created; trying again", error=error.message)
        else:
            self._fail_reads()

    async def _remove(self, results: str) -> None:
        """Remove an answer channel that nobody reads (any more)."""
        with contextlib.suppress(Unavailable):
            await self._channels.remove(results)

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

    def service_time(self, collection_id: CollectionID) -> Timestamp:
        known = self._served.get(collection_id)
        if known is None or self._waits.now_s() - known.seen_s > _FRESH_S:
            replicas = self._replicas_of(collection_id)
            ticks = self._on_loop(self._rootcoord.ticks())
            pchannels = {pchannel_of(vchannel) for vchannel in replicas[0].info.vchannels}
            ts = min((ticks.get(p, NO_TIMESTAMP) for p in pchannels), default=NO_TIMESTAMP)
            known = _Served(max(ts, known.ts if known else NO_TIMESTAMP), self._waits.now_s())
            if known.ts != NO_TIMESTAMP:  # otherwise nothing is known
                self._served[collection_id] = known
        return known.ts

    def wait_service_time(self, collection_id: CollectionID, ts: Timestamp, patience: Patience) -> None:
        """Wait for the first tick.

        A root coordinator that has just started has written no ticks, while the nodes serve all data.
        """
        while self.service_time(collection_id) == NO_TIMESTAMP:
            if not patience.left_s():
                raise DeadlineExceeded(
                    f"collection {collection_id} got no time tick within {patience.timeout_s:g} s; retry"
                )
            with patience.waiting():
                self._waits.sleep(_TICK_LOOK_S)

    def search(self, request: NodeSearch, patience: Patience) -> NodeHits:
        parts = self._read(request.collection_id, request, patience)
        return merge_hits([_as(NodeHits, part) for part in parts], request.k)

    def query(self, request: NodeQuery, patience: Patience) -> Mapping[str, pa.Array]:
        wanted = replace(request, output_fields=(*request.output_fields, TIMESTAMP_FIELD))
        parts = [_as(dict, part) for part in self._read(request.collection_id, wanted, patience)]
        key = next(iter(parts[0]))  # a node returns the primary key first
        return merge_rows(parts, key, request.limit)

    def count(self, request: NodeQuery, patience: Patience) -> int:
        parts = self._read(request.collection_id, NodeCount(request), patience)
        return sum(_as(int, part) for part in parts)

    def _read(self, collection_id: CollectionID, read: Read, patience: Patience) -> list[Answer]:
        """Ask the replicas in turn until one answers; once more if the known replicas were out of date."""
        data = encode_read(read)
        try:
            return self._ask_in_turn(collection_id, data, patience)
        except ChannelLost:
            return self._ask_in_turn(collection_id, data, patience)

    def _ask_in_turn(self, collection_id: CollectionID, data: bytes, patience: Patience) -> list[Answer]:
        """Raises `ChannelLost` when any replica failed with it: the channel may have been replaced."""
        replicas = self._replicas_of(collection_id)
        first = next(self._turns)
        failures: list[Unavailable] = []
        for attempt in range(len(replicas)):
            try:
                return self._ask(replicas[(first + attempt) % len(replicas)], data, patience)
            except Unavailable as error:
                self._replicas.forget(collection_id)
                failures.append(error)
        raise next((error for error in failures if isinstance(error, ChannelLost)), failures[-1])

    def _ask(self, replica: KnownReplica, data: bytes, patience: Patience) -> list[Answer]:
        info = replica.info
        request_id = next(self._numbers)
        gathering = self._gatherings[request_id] = Gathering(data, replica, self._waits.signal())
        message = encode_message(
            DqRequest(
                request_id,
                self._node_id,
                self._results,
                info.collection_id,
                patience.left_s(),
                data if len(data) <= PAYLOAD_MAX_BYTES else b"",
            )
        )
        try:
            # Checked after the read is registered: either these checks end it, or `stop` and `node_lost` do.
            if self._is_stopped:
                raise _stopped()
            self._replicas.check(replica)
            self._waits.begin(self._hand_over(info.channel, message, gathering))
            answers = self._wait(gathering, info, patience)
        finally:
            del self._gatherings[request_id]
        if answers is None:
            raise DeadlineExceeded(
                f"the query nodes of collection {info.collection_id} did not all answer within "
                f"{patience.timeout_s:g} s ({gathering.missing()}); retry"
            )
        patience.waited_s += gathering.waited_s
        self._saw(info.collection_id, Timestamp(gathering.service_ts))
        return answers

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

    def _saw(self, collection_id: CollectionID, ts: Timestamp) -> None:
        with self._lock:
            known = self._served.get(collection_id)
            if known is None or ts > known.ts:
                self._served[collection_id] = _Served(ts, self._waits.now_s())

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
