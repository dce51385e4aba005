"""Following a stream from a given sequence on, with any content, for as long as needed.

Messages come through a consumer that the server keeps in memory and forgets a while after its reader has
gone. The reader requests a bounded number of bytes at a time, so a slow one costs the server nothing and
is never flooded. A consumer that is lost, with its server or a connection, is created again from the next
message on: sequences have no gaps, so no message can be missed or read twice.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn

import msgspec
import structlog
from nats.aio.msg import Msg

from elanus.core.errors import ElanusError, Unavailable
from elanus.core.faults import LogFault
from elanus.nats.connection import NO_MESSAGE, NO_STREAM, Interrupted, NatsConnection, Refused
from elanus.nats.messages import IncomingMessage
from elanus.nats.streams import very_first

PULL_MESSAGES_MAX = 1000
_PULL_BYTES = 8 * 1024 * 1024
_HELD_BYTES_MAX = 16 * 1024 * 1024
"""How much is read ahead of the caller; beyond it nothing more is requested."""
_PULL_EXPIRES_S = 30.0
FORGOTTEN_AFTER_S = 60.0
"""A consumer without requests for this long is removed by its server."""
_RETRY_S = 0.2
_NS_PER_S = 1_000_000_000
_HEARTBEAT, _PULL_ENDS, _CONFLICT = "100", frozenset({"404", "408"}), "409"
_FULL = frozenset({"Message Size Exceeds MaxBytes", "Batch Completed"})
_BROKEN = "the connection broke"
_STATUS, _DESCRIPTION = "Status", "Description"
_logger = structlog.get_logger(__name__)


class Loss(Enum):
    """Why a stream cannot be followed any further. In order: it does not exist (any more); the next message
    is no longer kept; the stream ends before the place from which it is to be read; messages inside it are
    missing."""

    GONE = "gone"
    TRIMMED = "trimmed"
    SHRUNK = "shrunk"
    MISSING = "missing"


class Done(Exception):
    """Raised by a subclass: there is nothing more to follow. ``reason`` is the error for the reader."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass(slots=True)
class _Pull:
    """One request for messages: answers carry ``subject``, ``left`` messages are still to come.

    ``over`` completes when no more of them will come, with the error if there is one.
    """

    subject: str
    left: int
    over: asyncio.Future[None]


class StreamFollower(ABC):
    """Subclasses decide what to do with messages and losses. No request is sent before `begin`.

    ``heartbeat_s``: the interval of the server's heartbeats. After ``silence_s_max`` without one, its
    consumer counts as lost. ``may_begin_beyond``: whether to wait if the stream has not reached the start;
    else that is a loss.
    """

    heartbeat_s = 5.0
    silence_s_max = 12.0
    may_begin_beyond = False

    def __init__(
        self,
        connection: NatsConnection,
        stream: str,
        start: int,
        *,
        headers_only: bool = False,
        make_stream: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """``start``: the first sequence to read; 1: the stream's very first.

        ``make_stream``: creates a stream that does not exist yet; without it, a missing stream is a loss.
        """
        self.stream = stream
        self.next_sequence = start
        self.last_seen = 0
        """The stream's last sequence when it was last checked."""
        self.failure: Exception | None = None
        self.changed = asyncio.Event()
        """Set when there is something to read, or a failure."""
        self._connection = connection
        self._headers_only = headers_only
        self._make_stream = make_stream
        self._has_read = False
        self._very_first = 1
        self._gap_at = 0
        self._held_bytes = 0
        self._taken = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._pulling: _Pull | None = None
        self._last_message_s = 0.0
        self._broke = False

    @abstractmethod
    def accept(self, message: IncomingMessage) -> int:
        """Take the next message; returns how many bytes are held for it until `release`.

        Raises an `ElanusError` or a `LogFault` for one that cannot be read.
        """

    @abstractmethod
    def loss(self, loss: Loss, text: str) -> Exception:
        """Return the error for the reader."""

    @abstractmethod
    def due(self) -> int:
        """Return how many messages to request at a time, at least 1.

        Also called after the stream's bounds were checked. Raises `Done` when none are wanted any more.
        """

    def begin(self) -> None:
        """Start following; does nothing when it was started before, or has ended."""
        if self._following is None and self.failure is None:
            self._following = asyncio.create_task(self._follow(), name=f"read {self.stream}")

    def release(self, held_bytes: int) -> None:
        self._held_bytes -= held_bytes
        self._taken.set()

    def stop(self, why: Exception) -> None:
        """Request nothing more; ``why`` is the failure from now on, if there is none yet."""
        self.failure = self.failure or why
        self.changed.set()
        if self._following is not None:
            self._following.cancel()

    async def stopped(self) -> None:
        """Return when no task of the follower runs any more."""
        while self._following is not None and not self._following.done():
            # The NATS client waits with `asyncio.wait_for`, which before Python 3.12 loses a cancellation
            # that arrives at the same moment as the awaited result.
            self._following.cancel()
            await asyncio.wait((self._following,), timeout=_RETRY_S)

    async def _bounds(self) -> tuple[int, int]:
        """Return the first and the last sequence that the stream holds. Raises `Interrupted`, `Done`."""
        while True:
            try:
                return await self._ask_bounds()
            except Refused as refusal:
                if refusal.code != NO_STREAM or self._make_stream is None or self._has_read:
                    raise Done(self.loss(Loss.GONE, str(refusal))) from None
                await self._make_stream()

    async def _ask_bounds(self) -> tuple[int, int]:
        """Ask the stream for its bounds. Raises `Interrupted`, `Refused`, `Done`."""
        info = await self._connection.api(f"STREAM.INFO.{self.stream}")
        self._very_first = very_first(info)
        return info["state"]["first_seq"], info["state"]["last_seq"]

    async def _follow(self) -> None:
        try:
            while True:
                try:
                    await self._connection.ready(self.silence_s_max)
                    await self._consume()
                except Interrupted as interruption:
                    _logger.info(
                        "stream reader interrupted",
                        stream=self.stream,
                        reason=str(interruption),
                    )
                    await asyncio.sleep(_RETRY_S)
        except Done as done:
            self._fail(done.reason)
        except (LogFault, ElanusError) as error:
            self._fail(error)
        except OSError as error:
            self._fail(Unavailable(f"{self.stream} cannot be read: {error}"))
        except Exception as error:
            _logger.exception("stream reader failed unexpectedly", stream=self.stream)
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.failure = self.failure or error
        self.changed.set()

    async def _consume(self) -> None:
        """Read through one consumer, until it is lost. Raises `Interrupted` then."""
        consumer = uuid.uuid4().hex
        self._broke = False
        async with self._connection.inbox(self._received) as subject:
            try:
                await self._create(consumer)
            except Refused as refusal:
                raise Interrupted(f"no consumer: {refusal}") from None
            for pull in itertools.count():
                await self._room()
                await self._pull(consumer, f"{subject}.{pull}")

    async def _create(self, consumer: str) -> None:
        first, last = await self._bounds()
        self.last_seen = last
        if self.next_sequence == 1:
            self.next_sequence = self._very_first
        if self.next_sequence < first:
            raise Done(
                self.loss(
                    Loss.TRIMMED, f"position {self.next_sequence} is trimmed; the log begins at {first}"
                )
            )
        if self.next_sequence > last + 1 and (self._has_read or not self.may_begin_beyond):
            raise Done(
                self.loss(
                    Loss.SHRUNK,
                    f"position {self.next_sequence} is needed, but the log ends at {last + 1}: an older copy "
                    "was put in its place, or the NATS server lost messages that it had acknowledged (is its "
                    "sync_interval always?)",
                )
            )
        if self._gap_at == self.next_sequence and not await self._is_kept(self.next_sequence):
            raise Done(self.loss(Loss.MISSING, f"message {self.next_sequence} is missing"))
        self.due()
        config = {
            "name": consumer,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self.next_sequence,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": int(FORGOTTEN_AFTER_S * _NS_PER_S),
            "headers_only": self._headers_only,
        }
        await self._connection.api(
            f"CONSUMER.CREATE.{self.stream}.{consumer}", {"stream_name": self.stream, "config": config}
        )

    async def _is_kept(self, sequence: int) -> bool:
        """Whether the stream itself has the message that a consumer did not deliver."""
        try:
            await self._connection.api(f"STREAM.MSG.GET.{self.stream}", {"seq": sequence})
        except Refused as refusal:
            if refusal.code != NO_MESSAGE:
                raise Interrupted(f"no answer about message {sequence}: {refusal}") from None
            return False
        return True

    async def _room(self) -> None:
        while self._held_bytes > _HELD_BYTES_MAX:
            self._taken.clear()
            await self._taken.wait()

    async def _pull(self, consumer: str, subject: str) -> None:
        """Request messages once, and return when the request is over. Raises `Interrupted` and what ends the
        reading."""
        loop = asyncio.get_running_loop()
        pull = _Pull(subject, self.due(), loop.create_future())
        asked = {
            "batch": pull.left,
            "max_bytes": _PULL_BYTES + self._connection.payload_max_bytes,
            "expires": int(_PULL_EXPIRES_S * _NS_PER_S),
            "idle_heartbeat": int(self.heartbeat_s * _NS_PER_S),
        }
        if self._broke:
            raise Interrupted(_BROKEN)
        self._pulling, self._last_message_s = pull, loop.time()
        try:
            next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{consumer}"
            await self._connection.publish(next_subject, msgspec.json.encode(asked), reply=subject)
            while not pull.over.done():
                left_s = self._last_message_s + self.silence_s_max - loop.time()
                if left_s <= 0:
                    raise Interrupted(f"no message or heartbeat for {self.silence_s_max:g} s")
                await asyncio.wait((pull.over,), timeout=left_s)
            pull.over.result()
        finally:
            self._pulling = None
            if not pull.over.cancel():
                pull.over.exception()  # marks an error as retrieved, even if reading is stopped right now

    def _received(self, message: Msg | None) -> None:
        """Called with everything that arrives, in order."""
        self._last_message_s = asyncio.get_running_loop().time()
        self._broke = self._broke or message is None
        pull = self._pulling
        if pull is None or pull.over.done():
            return  # messages after an error are requested again
        try:
            if self._completes(pull, message):
                pull.over.set_result(None)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the pull's
            pull.over.set_exception(error)

    def _completes(self, pull: _Pull, message: Msg | None) -> bool:
        """Take a message; return whether it ends the pull. Raises `Interrupted` and what ends the reading."""
        if message is None:
            raise Interrupted(_BROKEN)
        status = (message.headers or {}).get(_STATUS)
        if status is None:
            self._arrived(message)
            pull.left -= 1
            return pull.left == 0
        if status == _HEARTBEAT or message.subject != pull.subject:
            return False
        description = (message.headers or {}).get(_DESCRIPTION, "")
        if status in _PULL_ENDS or (status == _CONFLICT and description in _FULL):
            return True
        raise Interrupted(f"the consumer is gone: {status} {description}")

    def _arrived(self, message: Msg) -> None:
        sequence = message.metadata.sequence.stream
        if sequence != self.next_sequence:
            self._skipped(sequence)
        self.next_sequence, self._has_read = sequence + 1, True
        data = None if self._headers_only else message.data
        self._held_bytes += self.accept(IncomingMessage(sequence, message.headers or {}, data))
        self.changed.set()

    def _skipped(self, sequence: int) -> NoReturn:
        """A consumer may be wrong: before reading continues, check with the stream."""
        self._gap_at = self.next_sequence
        raise Interrupted(f"message {sequence} arrived where {self.next_sequence} was due")
