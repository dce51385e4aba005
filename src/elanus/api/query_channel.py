"""Query channels: reads and version changes in one order, between proxies, querycoord and query nodes.

Each replica of a loaded collection has one channel. Proxies write `DqRequest`s into it, querycoord writes
`SealedSegmentsChangeInfo`s, and every node of the replica reads all of it in order. So all nodes answer a
given read under the same collection version, however fast each of them is. Answers go to a channel that
belongs to the asking proxy.

Channels are volatile: nothing in them survives the broker, and nothing needs to. A channel that is lost
is created again under a new name from the `QueryChannelInfo` that querycoord keeps; reads under way fail and
may be repeated. Channels carry order, plans and small payloads; what exceeds `PAYLOAD_MAX_BYTES` is
fetched from, or sent to, the proxy by RPC (`ReadPayloads`). A version change or an answer that names tens of
thousands of segments is compressed: brokers refuse messages of more than 1 MB.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from elanus.api.idempotency import repeatable
from elanus.core.errors import Internal
from elanus.core.explanation import NodeReport
from elanus.core.ids import CollectionID, NodeID, PartitionID, SegmentID
from elanus.core.timestamps import Timestamp

PAYLOAD_MAX_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class MissingSegment:
    """A segment whose rows a version lacks, because its files cannot be read. ``reason`` names the file."""

    partition_id: PartitionID
    reason: str


@dataclass(frozen=True, slots=True)
class QueryChannelInfo:
    """A replica's channel, and the version in force at one of its positions.

    ``sealed``: where each sealed segment is served; ``vchannels``: the node that serves each vchannel's
    growing rows. A node that starts on the channel takes these, and reads from ``seek_position`` on.
    ``visible_from``, ``missing`` and ``deletes``: see `SealedSegmentsChangeInfo`.
    """

    collection_id: CollectionID
    replica: int
    channel: str
    version: int
    sealed: Mapping[SegmentID, NodeID]
    vchannels: Mapping[str, NodeID]
    seek_position: int = 0
    visible_from: Mapping[SegmentID, Timestamp] = field(default_factory=dict)
    missing: Mapping[SegmentID, MissingSegment] = field(default_factory=dict)
    deletes: Mapping[str, Timestamp] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SealedSegmentsChangeInfo:
    """A new version: what comes online where, what goes offline where, which node leads which vchannel.

    A segment that moves is in both: online at its new node, offline at the old one. ``vchannels`` are
    all of them, with the node that serves each from this version on. ``replaced``: segments whose rows are
    now in those online, by compaction; no node may take them from the log any more. ``visible_from``: the
    segments among those online that reads as of an earlier moment must not see; they hold imported rows.
    ``missing``: all segments that nobody serves under this version; reads of their partitions are refused.
    ``deletes``: the delta logs of writes that take effect with this version or an earlier one, by path, until
    nodes find them in what they load; each with the moment from which reads see it (0: its own timestamp).
    """

    collection_id: CollectionID
    version: int
    online: Mapping[SegmentID, NodeID]
    offline: Mapping[SegmentID, NodeID]
    vchannels: Mapping[str, NodeID]
    replaced: tuple[SegmentID, ...] = ()
    visible_from: Mapping[SegmentID, Timestamp] = field(default_factory=dict)
    missing: Mapping[SegmentID, MissingSegment] = field(default_factory=dict)
    deletes: Mapping[str, Timestamp] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DqRequest:
    """A read for every node of the replica.

    ``read``: see `elanus.channels.read_codec`; empty: fetch it by RPC.

    ``request_id`` is unique for the proxy; ``results`` is the proxy's channel of answers; ``timeout_s``:
    how long the proxy will wait, from the time it wrote this. ``is_followed``: the nodes report what they
    did, too.
    """

    request_id: int
    proxy: NodeID
    results: str
    collection_id: CollectionID
    timeout_s: float
    read: bytes
    is_followed: bool = False


@dataclass(frozen=True, slots=True)
class DqResult:
    """One node's answer: what it has searched, under which version, and what it found.

    ``vchannels`` and ``segments``: those this node serves, all of them searched. ``sealed``: all sealed
    segments of the version on all nodes, so that the collector knows when the answer is complete.
    ``service_ts``: up to where the node has served. ``error``: type and text of an error, empty when there
    is none. ``answer``: see `elanus.channels.read_codec`; empty: it was sent by RPC. ``waited_s``: how long
    the read waited on the node for its timestamp to be served. ``report``: what the node did, for a read that
    is followed.
    """

    request_id: int
    node_id: NodeID
    version: int
    vchannels: tuple[str, ...]
    segments: tuple[SegmentID, ...]
    sealed: tuple[SegmentID, ...]
    service_ts: int
    error: tuple[str, str] = ("", "")
    answer: bytes = b""
    waited_s: float = 0.0
    report: NodeReport | None = None


ChannelMessage = DqRequest | SealedSegmentsChangeInfo

_REQUEST, _CHANGE, _COMPRESSED = b"R", b"C", b"Z"
_requests = msgspec.msgpack.Decoder(DqRequest)
_changes = msgspec.msgpack.Decoder(SealedSegmentsChangeInfo)
_results = msgspec.msgpack.Decoder(DqResult)


def encode_message(message: ChannelMessage) -> bytes:
    kind = _REQUEST if isinstance(message, DqRequest) else _CHANGE
    return _small(kind + msgspec.msgpack.encode(message))


def decode_message(data: bytes) -> ChannelMessage:
    """Raises `Internal` for bytes that no release of Elanus wrote."""
    decoder: msgspec.msgpack.Decoder[DqRequest] | msgspec.msgpack.Decoder[SealedSegmentsChangeInfo]
    try:
        data = _whole(data)
        decoder = _requests if data[:1] == _REQUEST else _changes
        return decoder.decode(data[1:])
    except (msgspec.DecodeError, zlib.error) as error:
        raise Internal(f"a message of a query channel cannot be read: {error}") from error


def encode_result(result: DqResult) -> bytes:
    return _small(msgspec.msgpack.encode(result))


def decode_result(data: bytes) -> DqResult:
    """Raises `Internal` for bytes that no release of Elanus wrote."""
    try:
        return _results.decode(_whole(data))
    except (msgspec.DecodeError, zlib.error) as error:
        raise Internal(f"an answer on a result channel cannot be read: {error}") from error


def _small(message: bytes) -> bytes:
    """Compress a large message. An encoded result never begins as a compressed message does: it is an array
    or a map."""
    return message if len(message) <= PAYLOAD_MAX_BYTES else _COMPRESSED + zlib.compress(message, 1)


def _whole(data: bytes) -> bytes:
    return zlib.decompress(data[1:]) if data[:1] == _COMPRESSED else data


@dataclass(frozen=True, slots=True)
class Handed:
    """A message that was handed over. ``mark``: identifies the message to the broker."""

    channel: str
    message: bytes
    mark: str


class ChannelReader(Protocol):
    """A subscription, in order from its first position."""

    async def next(self) -> tuple[int, bytes]:
        """Return the next message with its position. Raises `ChannelLost` when the channel is gone."""
        ...

    async def close(self) -> None: ...


class QueryChannels(Protocol):
    """The broker of query and result channels. Messages of one channel have one order for all readers."""

    async def create(self, channel: str) -> None:
        """Create a channel. Does nothing if it already exists."""
        ...

    async def remove(self, channel: str) -> None:
        """Remove a channel; its readers get `ChannelLost`. Does nothing if it does not exist."""
        ...

    async def publish(self, channel: str, message: bytes) -> int:
        """Return the message's position, once the broker has it. Raises `ChannelLost`, `Unavailable`."""
        ...

    async def hand_over(self, channel: str, message: bytes) -> Handed:
        """Publish without waiting until the broker has the message: for messages that nobody waits for any
        longer than a read.

        A message that may have been lost with a connection is handed over again, and appears in the channel
        once. If there is no channel for it, only `confirm` reports that.
        """
        ...

    async def confirm(self, handed: Handed) -> int:
        """Wait until the broker has a message that was handed over recently; return its position.

        It is handed over again if need be, and appears in the channel once. Raises `ChannelLost`,
        `Unavailable`.
        """
        ...

    async def end(self, channel: str) -> int:
        """Return the position that the next message gets. Raises `ChannelLost`, `Unavailable`."""
        ...

    async def open_reader(self, channel: str, start: int) -> ChannelReader:
        """Read from position ``start`` on; positions begin at 1, 0 means from the first still kept.

        Raises `ChannelLost` when the channel does not exist, `Unavailable`.
        """
        ...


class ReadPayloads(Protocol):
    """RPCs of a proxy for query nodes, for payloads that are too large for the channels."""

    @repeatable
    async def fetch_read(self, request_id: int) -> bytes:
        """Return the ``read`` of a request. Raises `Unavailable` when the proxy has given the request up."""
        ...

    @repeatable
    async def give_answer(self, request_id: int, node_id: NodeID, answer: bytes) -> None:
        """Called before the `DqResult` is published. Answers to abandoned requests are not kept."""
        ...
