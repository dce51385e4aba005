"""The JetStream adapter of `elanus.log.port.Log`. Its parts: `elanus.log.jetstream`."""

from __future__ import annotations

import asyncio
import base64
import time
import uuid
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar
from urllib.parse import quote, unquote

import structlog

from elanus.core.errors import Unavailable
from elanus.core.ids import NodeID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.log.jetstream.messages import fence_headers, parse_headers, timestamp_in
from elanus.log.jetstream.reader import READ_BYTES_MAX, EndReached, StreamReader
from elanus.log.jetstream.writer import StreamWriter
from elanus.log.port import (
    START,
    Appender,
    HeldPositions,
    LogClosed,
    LogEntry,
    LogReader,
    NewEntry,
    Position,
    channel_rewound,
    nothing_held,
)
from elanus.nats.connection import (
    NO_STREAM,
    Interrupted,
    NatsConnection,
    Refused,
    client_error,
    decoded,
)
from elanus.nats.source import NatsSource
from elanus.nats.streams import stream_pages, very_first

_LIST_EVERY_S = 10.0
_RETRY_S = 0.2
_ANSWER_TIMEOUT_S = 30.0
_PCHANNEL_LENGTH_MAX = 60
_NODE = "node-"
"""Begins the last level of the subjects of `NatsLog.appender`; those of whole processes are hexadecimal."""
_OTHER_CONFIG = 10058
"""JetStream's error code for a stream that exists with another configuration."""
_logger = structlog.get_logger(__name__)
T = TypeVar("T")


class _NoStream(Exception):
    """The pchannel has no stream: nothing was ever appended to it."""


@dataclass(frozen=True, slots=True)
class _State:
    """The known state of a stream. ``end``: the position after its last message."""

    end: Position = START
    size_bytes: int = 0


class NatsLog:
    """Created with `open`, used on that event loop. Any number of processes may append at the same time.

    ``end``, ``pchannels`` and ``size_bytes`` answer at once with what this process knows: all of its own
    appends, and those of others as of the last poll, at most ten seconds ago. `sync` asks the server.
    """

    def __init__(
        self, connection: NatsConnection, append_timeout_s: float, held: HeldPositions = nothing_held
    ) -> None:
        self._connection = connection
        self._held = held
        self._source = connection.source
        self._append_timeout_s = append_timeout_s
        own_id = uuid.uuid4().hex
        self._own = _Appender(self, lambda pchannel: self._writer(pchannel, own_id))
        self._appenders = weakref.WeakSet([self._own])
        self._fenced: dict[str, set[NodeID]] = {}
        self._states: dict[str, _State] = {}
        self._readers: weakref.WeakSet[_Reader] = weakref.WeakSet()
        self._listing: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    async def open(
        cls,
        source: NatsSource,
        *,
        append_timeout_s: float = 30.0,
        held: HeldPositions = nothing_held,
        name: str = "elanus",
    ) -> Self:
        """Connect, and get the existing streams.

        ``append_timeout_s``: how long an append waits for unavailable servers before it fails. ``held``: see
        `elanus.log.port.LogOptions`. Raises `Unavailable` and `elanus.core.errors.InvalidParameter`.
        """
        self = cls(await NatsConnection.open(source, name), append_timeout_s, held)
        self._connection.when_connected_again(self._check_again)
        try:
            await self._list_streams()
        except BaseException:
            await self._connection.close()
            raise
        self._listing = asyncio.create_task(self._keep_listing(), name="NATS streams")
        return self

    async def append(
        self, pchannel: str, entries: Sequence[NewEntry], *, durable: bool = True
    ) -> Sequence[Position]:
        """As in the port; ``durable`` makes no difference: the servers' configuration determines durability.

        Raises `Unavailable` when no acknowledgement arrived in time (the entries may be in the log all the
        same), `ChannelRewound` when the stream ends before what is known of it, `DiskFull`,
        `elanus.core.errors.InvalidParameter` for an entry that is too large, `ValueError` for a header value
        that cannot be stored, and `elanus.core.errors.PartlyWritten` as in the port.
        """
        return await self._own.append(pchannel, entries, durable=durable)

    def appender(self, writer: NodeID, confirm: Callable[[], Awaitable[None]]) -> Appender:
        made = _Appender(self, lambda pchannel: self._writer(pchannel, f"{_NODE}{writer}", confirm))
        self._appenders.add(made)
        return made

    async def fence(self, pchannel: str, is_gone: Callable[[NodeID], bool]) -> None:
        """As in the port. Raises `Unavailable` and `DiskFull`."""
        self.check_open()
        stream = _stream(self._source, pchannel)
        try:
            info = await self._ask(f"STREAM.INFO.{stream}", {"subjects_filter": f"{stream}.*"})
        except _NoStream:
            return
        nodes = f"{stream}.{_NODE}"
        subjects = info["state"].get("subjects") or ()
        there = {NodeID(int(s.removeprefix(nodes))) for s in subjects if s.startswith(nodes)}
        fenced = self._fenced[pchannel] = self._fenced.get(pchannel, set()) & there
        for writer in sorted(filter(is_gone, there - fenced)):
            await self._put_fence(pchannel, f"{nodes}{writer}")
            fenced.add(writer)

    async def _put_fence(self, pchannel: str, subject: str) -> None:
        try:
            answer = await self._connection.request(subject, b"", fence_headers())
            decoded(answer.data)
        except Interrupted as interruption:
            raise Unavailable(f"NATS has not taken an entry of {pchannel}: {interruption}") from None
        except Refused as refusal:
            raise client_error(refusal, f"an append to {pchannel}") from None

    async def newest(self, pchannel: str) -> Timestamp:
        """As in the port. Fences and the pieces of large entries are passed over, backward from the end."""
        self.check_open()
        stream = _stream(self._source, pchannel)
        try:
            state = (await self._ask(f"STREAM.INFO.{stream}"))["state"]
            for sequence in range(state["last_seq"], state["first_seq"] - 1, -1):
                message = (await self._ask(f"STREAM.MSG.GET.{stream}", {"seq": sequence}))["message"]
                ts = timestamp_in(parse_headers(base64.b64decode(message.get("hdrs", ""))))
                if ts != NO_TIMESTAMP:
                    return ts
        except _NoStream:
            pass
        return NO_TIMESTAMP

    def open_reader(self, pchannel: str, start: Position, *, headers_only: bool = False) -> LogReader:
        self.check_open()
        inner = StreamReader(
            self._connection,
            _stream(self._source, pchannel),
            start,
            headers_only=headers_only,
            make_stream=partial(self._make_stream, pchannel),
        )
        reader = _Reader(self, pchannel, inner)
        self._readers.add(reader)
        return reader

    def end(self, pchannel: str) -> Position:
        return self._states.get(pchannel, _State()).end

    def missing_from(self, pchannel: str, position: Position) -> Position | None:
        end = self.end(pchannel)
        return end if position > end > START else None

    async def sync(self, pchannel: str) -> Position:
        """Return the end, requested from the server. Acknowledged entries are already as durable as they will
        be."""
        self.check_open()
        await self._refresh(pchannel)
        return self.end(pchannel)

    async def trim(self, pchannel: str, before: Position) -> None:
        self.check_open()
        await self._refresh(pchannel)
        cut = min(before, self.end(pchannel))
        if cut > START:
            await self._ask(f"STREAM.PURGE.{_stream(self._source, pchannel)}", {"seq": cut})
            await self._refresh(pchannel)

    def pchannels(self) -> Sequence[str]:
        return sorted(name for name, state in self._states.items() if state.end > START)

    def size_bytes(self, pchannel: str = "") -> int:
        return sum(state.size_bytes for name, state in self._states.items() if pchannel in ("", name))

    async def close(self) -> None:
        """Wait for the answers to all appends, then disconnect. Readers can still read up to the end."""
        if self._closed:
            return
        self._closed = True
        await asyncio.gather(*(writer.finish() for writer in self._writers()))
        if self._listing is not None:
            self._listing.cancel()
            await asyncio.gather(self._listing, return_exceptions=True)
        await asyncio.gather(*(reader.disconnect() for reader in list(self._readers)))
        await self._connection.close()

    @property
    def source(self) -> NatsSource:
        return self._source

    def _writer(
        self, pchannel: str, name: str, confirm: Callable[[], Awaitable[None]] | None = None
    ) -> StreamWriter:
        """Return a writer of the pchannel. Raises `ValueError` for a name that is not valid for a stream."""

        def stored(last: int, payload_bytes: int) -> None:
            old = self._states.get(pchannel, _State())
            end = Position(max(old.end, last + 1))
            self._states[pchannel] = _State(end, old.size_bytes + payload_bytes)

        stream = _stream(self._source, pchannel)
        return StreamWriter(
            self._connection,
            stream,
            f"{stream}.{name}",
            self._append_timeout_s,
            partial(self._check_stream, pchannel),
            stored,
            confirm,
        )

    async def _check_stream(self, pchannel: str) -> None:
        """Create the stream if there is none, and check that it reaches all positions that are known.

        Raises `Interrupted`, and `ElanusError`: `ChannelRewound` if it does not.
        """
        # In this order: the stream had reached a position before anybody could know of it.
        held = await self._held()
        known = max(self.end(pchannel), held.get(pchannel, START))
        await self._make_stream(pchannel)
        try:
            info = await self._connection.api(f"STREAM.INFO.{_stream(self._source, pchannel)}")
        except Refused as refusal:
            raise client_error(refusal, f"a lookup of the end of {pchannel}") from None
        last = info["state"]["last_seq"]
        if last + 1 < known:  # a new stream begins beyond what is known
            raise channel_rewound(pchannel, known, last + 1)

    async def _check_again(self) -> None:
        """Have every writer check its stream: a server that was away may come back with an older copy."""
        for writer in self._writers():
            writer.check_again()

    def _writers(self) -> list[StreamWriter]:
        return [writer for appender in list(self._appenders) for writer in appender.writers.values()]

    async def _make_stream(self, pchannel: str) -> None:
        """Create the stream; an existing one is not changed. Raises `Interrupted`, `ElanusError`.

        It begins at a position that no earlier stream of the pchannel has reached: the microseconds since
        1970. A reader that needs a message of an earlier stream, which was lost, gets `TrimmedLog` and not
        the messages of this one.
        """
        stream = _stream(self._source, pchannel)
        config = {
            "name": stream,
            "subjects": [f"{stream}.*"],
            "storage": "file",
            "discard": "new",
            "num_replicas": self._source.replicas,
            "first_seq": time.time_ns() // 1000,
            "allow_atomic": True,
        }
        try:
            await self._connection.api(f"STREAM.CREATE.{stream}", config)
        except Refused as refusal:
            if refusal.code != _OTHER_CONFIG:  # created with other replicas, or since changed by an operator
                raise client_error(refusal, f"the stream {stream}") from None

    async def _list_streams(self) -> None:
        """Get the state of all streams. Raises `Unavailable`.

        Other tasks go on meanwhile: they may learn of a stream that was made since its page was answered.
        """
        before, found = dict(self._states), set[str]()
        async for page in stream_pages(self._ask):
            for info in page:
                pchannel = _pchannel_of(self._source, info["config"]["name"])
                if pchannel is not None:
                    found.add(pchannel)
                    self._states[pchannel] = self._newer(pchannel, info)
        for pchannel, state in before.items():
            if pchannel not in found and self._states.get(pchannel) is state:
                del self._states[pchannel]

    async def _refresh(self, pchannel: str) -> None:
        """Get the state of the pchannel's stream. Raises `Unavailable`."""
        try:
            info = await self._ask(f"STREAM.INFO.{_stream(self._source, pchannel)}")
        except _NoStream:
            self._states.pop(pchannel, None)
        else:
            self._states[pchannel] = self._newer(pchannel, info)

    def _newer(self, pchannel: str, info: dict[str, Any]) -> _State:
        """Return the newer state: an append of this process may have been acknowledged since the server
        answered."""
        last, known = info["state"]["last_seq"], self.end(pchannel)
        if last + 1 < known:
            for appender in list(self._appenders):
                if pchannel in appender.writers:
                    appender.writers[pchannel].check_again()
        end = max(last + 1 if last >= very_first(info) else START, known)
        return _State(Position(end), info["state"]["bytes"])

    async def _keep_listing(self) -> None:
        while True:
            await asyncio.sleep(_LIST_EVERY_S)
            try:
                await self._list_streams()
            except Unavailable as error:
                _logger.warning("log streams not listed; trying again", error=error.message)

    async def _ask(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask until there is an answer. Raises `Unavailable`, `_NoStream`."""
        deadline_s = time.monotonic() + _ANSWER_TIMEOUT_S
        while True:
            try:
                await self._connection.ready(max(0.0, deadline_s - time.monotonic()))
                return await self._connection.api(subject, body)
            except Refused as refusal:
                if refusal.code == NO_STREAM:
                    raise _NoStream from None
                raise client_error(refusal, subject) from None
            except Interrupted as interruption:
                if time.monotonic() > deadline_s:
                    raise Unavailable(f"NATS does not answer {subject}: {interruption}") from None
                await asyncio.sleep(_RETRY_S)

    def check_open(self) -> None:
        """Raises `LogClosed`."""
        if self._closed:
            raise LogClosed("the log is closed")


class _Appender:
    """One writer's appends: a `StreamWriter` for each pchannel. ``make``: makes one."""

    def __init__(self, log: NatsLog, make: Callable[[str], StreamWriter]) -> None:
        self._check_open = log.check_open
        self._make = make
        self.writers: dict[str, StreamWriter] = {}

    async def append(
        self, pchannel: str, entries: Sequence[NewEntry], *, durable: bool = True
    ) -> Sequence[Position]:
        self._check_open()
        if not entries:
            return ()
        if pchannel not in self.writers:
            self.writers[pchannel] = self._make(pchannel)
        return await self.writers[pchannel].append(entries)


class _Reader:
    """A `StreamReader` that outlives the log's connection: existing entries can be read after `close`."""

    def __init__(self, log: NatsLog, pchannel: str, inner: StreamReader) -> None:
        self._log = log
        self._pchannel = pchannel
        self._inner = inner
        self._closed = False

    async def read(self, bytes_max: int = READ_BYTES_MAX) -> Sequence[LogEntry]:
        try:
            return await self._inner.read(bytes_max)
        except EndReached:
            raise
        except LogClosed:
            end = self._log.end(self._pchannel)
            if self._closed or self._inner.position >= end:
                raise
        connection = await NatsConnection.open(self._log.source, "elanus reader")
        try:
            self._inner = self._inner.on(connection, end)
            return await self._inner.read(bytes_max)
        finally:
            await self.disconnect()
            await connection.close()

    def close(self) -> None:
        self._closed = True
        self._inner.close()

    async def disconnect(self) -> None:
        self._inner.stop(LogClosed(f"the log is closed; {self._pchannel} ends here"))
        await self._inner.stopped()


def read_range(source: NatsSource, pchannel: str, start: Position, stop: Position) -> Iterator[LogEntry]:
    """Entries with start ≤ position < stop, in any process: an `elanus.log.port.RangeReader` when bound.

    Synchronous; a separate event loop runs in a separate thread. Raises `CorruptLog` for a log that ends
    before ``stop``, `TrimmedLog` when ``start`` is no longer kept, and `Unavailable`.
    """
    if start >= stop:
        return
    with ExitStack() as stack:
        runner = asyncio.Runner()
        thread = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="elanus-log-range"))
        stack.callback(lambda: thread.submit(runner.close).result())

        def call(work: Coroutine[Any, Any, T]) -> T:
            return thread.submit(runner.run, work).result()

        connection = call(NatsConnection.open(source, "elanus range"))
        reader = StreamReader(connection, _stream(source, pchannel), start, stop=stop)
        stack.callback(lambda: call(_end(reader, connection)))
        while True:
            try:
                entries = call(reader.read())
            except EndReached:
                return
            yield from entries


async def _end(reader: StreamReader, connection: NatsConnection) -> None:
    reader.close()
    await reader.stopped()
    await connection.close()


def _stream(source: NatsSource, pchannel: str) -> str:
    """Return the stream's name: no dots, which separate the levels of subjects. Raises `ValueError`."""
    if not 0 < len(pchannel) <= _PCHANNEL_LENGTH_MAX:
        raise ValueError(f"pchannel {pchannel!r}: a name has 1 to {_PCHANNEL_LENGTH_MAX} characters")
    return f"{source.prefix}-{quote(pchannel, safe='').replace('.', '%2E').replace('%', '=')}"


def _pchannel_of(source: NatsSource, stream: str) -> str | None:
    """Return the pchannel of a stream; ``None`` when the stream does not belong to this log."""
    prefix = f"{source.prefix}-"
    return unquote(stream.removeprefix(prefix).replace("=", "%")) if stream.startswith(prefix) else None
