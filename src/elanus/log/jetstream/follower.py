"""Following a stream, whatever is in it, from a sequence on, for as long as one likes.

Messages come through a consumer that the server keeps in memory and forgets a while after its reader has
gone. The reader asks for a bounded number of bytes at a time, so a slow one costs the server nothing and
is never flooded. A consumer that is lost, with its server or a connection, is made again from the next
message on: sequences follow each other without a gap, so none can be missed or met twice.
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

from elanus.core.errors import ElanusError
from elanus.log.jetstream.connection import NO_MESSAGE, NO_STREAM, Interrupted, NatsConnection, Refused
from elanus.log.jetstream.messages import IncomingMessage
from elanus.log.port import CorruptLog

PULL_MESSAGES_MAX = 1000
_PULL_BYTES = 8 * 1024 * 1024
_HELD_BYTES_MAX = 16 * 1024 * 1024
"""Read ahead of whoever reads; beyond it nothing more is asked for."""
_PULL_EXPIRES_S = 30.0
FORGOTTEN_AFTER_S = 60.0
"""A consumer that is asked nothing for so long is removed by its server."""
_RETRY_S = 0.2
_NS_PER_S = 1_000_000_000
_HEARTBEAT, _PULL_ENDS, _CONFLICT = "100", frozenset({"404", "408"}), "409"
_FULL = frozenset({"Message Size Exceeds MaxBytes", "Batch Completed"})
_BROKEN = "the connection broke"
_STATUS, _DESCRIPTION = "Status", "Description"
_logger = structlog.get_logger(__name__)


class Loss(Enum):
    """Why a stream cannot be followed any further: it is not there (any more); the next message is not kept
    any more; the stream ends before what has been read of it; messages inside it are missing."""

    GONE = "gone"
    TRIMMED = "trimmed"
    SHRUNK = "shrunk"
    MISSING = "missing"


class Done(Exception):
    """Raised by a subclass: there is nothing more to follow. ``reason`` is for whoever reads."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass(slots=True)
class _Pull:
    """What was asked for at one time: answers carry ``subject``, ``left`` messages are still to come.

    ``over`` ends when no more of them will come, with the error if it is one.
    """

    subject: str
    left: int
    over: asyncio.Future[None]


class StreamFollower(ABC):
    """Subclasses say what becomes of messages and of losses. The server is asked nothing before `begin`.

    ``heartbeat_s``: how often a server gives a sign of life. After ``silence_s_max`` without one its
    consumer counts as lost.
    """

    heartbeat_s = 5.0
    silence_s_max = 12.0

    def __init__(
        self,
        connection: NatsConnection,
        stream: str,
        start: int,
        *,
        headers_only: bool = False,
        make_stream: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """``start``: the first sequence to read, from 1 on.

        ``make_stream``: what to do about a stream that is not there yet; without it that is a loss.
        """
        self.stream = stream
        self.next_sequence = start
        self.last_seen = 0
        """The stream's last sequence when it was last looked at."""
        self.failure: Exception | None = None
        self.changed = asyncio.Event()
        """Set when there is something to read, or a failure."""
        self._connection = connection
        self._headers_only = headers_only
        self._make_stream = make_stream
        self._has_read = False
        self._gap_at = 0
        self._held_bytes = 0
        self._taken = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._pulling: _Pull | None = None
        self._heard_s = 0.0
        self._broke = False

    @abstractmethod
    def accept(self, message: IncomingMessage) -> int:
        """Take the next message; returns how many bytes are held for it until `release`.

        Raises `elanus.log.port.CorruptLog` for one that cannot be read.
        """

    @abstractmethod
    def loss(self, loss: Loss, text: str) -> Exception:
        """The error for whoever reads."""

    @abstractmethod
    def due(self) -> int:
        """How many messages to ask for at a time, at least 1.

        Asked also when the stream's bounds were looked at. Raises `Done` when none are wanted any more.
        """

    def begin(self) -> None:
        """Start following; does nothing when that was done, or is over."""
        if self._following is None and self.failure is None:
            self._following = asyncio.create_task(self._follow(), name=f"read {self.stream}")

    def release(self, held_bytes: int) -> None:
        self._held_bytes -= held_bytes
        self._taken.set()

    def stop(self, why: Exception) -> None:
        """Ask for nothing more; ``why`` is the failure from now on, if there is none yet."""
        self.failure = self.failure or why
        self.changed.set()
        if self._following is not None:
            self._following.cancel()

    async def stopped(self) -> None:
        """Return when nothing of it runs any more."""
        while self._following is not None and not self._following.done():
            # The NATS client waits with `asyncio.wait_for`, which before Python 3.12 forgets that it was
            # cancelled when what it waits for comes in the same moment.
            self._following.cancel()
            await asyncio.wait((self._following,), timeout=_RETRY_S)

    async def _bounds(self) -> tuple[int, int]:
        """The first and the last sequence that the stream holds. Raises `Interrupted`, `Done`."""
        while True:
            try:
                return await self._look()
            except Refused as refusal:
                if refusal.code != NO_STREAM or self._make_stream is None or self._has_read:
                    raise Done(self.loss(Loss.GONE, str(refusal))) from None
                await self._make_stream()

    async def _look(self) -> tuple[int, int]:
        """Ask the stream for its bounds. Raises `Interrupted`, `Refused`, `Done`."""
        state = (await self._connection.api(f"STREAM.INFO.{self.stream}"))["state"]
        return state["first_seq"], state["last_seq"]

    async def _follow(self) -> None:
        try:
            while True:
                try:
                    await self._connection.ready(self.silence_s_max)
                    await self._consume()
                except Interrupted as interruption:
                    _logger.info("reading again", stream=self.stream, reason=str(interruption))
                    await asyncio.sleep(_RETRY_S)
        except Done as done:
            self._fail(done.reason)
        except (CorruptLog, ElanusError) as error:
            self._fail(error)
        except Exception as error:
            _logger.exception("a reader met an error it does not know", stream=self.stream)
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
        if self.next_sequence < first and first > 1:
            raise Done(
                self.loss(
                    Loss.TRIMMED, f"position {self.next_sequence} is trimmed; the log begins at {first}"
                )
            )
        if self._has_read and self.next_sequence > last + 1:
            raise Done(
                self.loss(
                    Loss.SHRUNK,
                    f"it ends at {last}, but has been read up to {self.next_sequence - 1}: the NATS server "
                    "lost messages that it had acknowledged (is its sync_interval always?)",
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
        """Ask for messages once, and return when what comes has come. Raises `Interrupted` and what ends the
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
        self._pulling, self._heard_s = pull, loop.time()
        try:
            next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{consumer}"
            await self._connection.publish(next_subject, msgspec.json.encode(asked), reply=subject)
            while not pull.over.done():
                left_s = self._heard_s + self.silence_s_max - loop.time()
                if left_s <= 0:
                    raise Interrupted(f"no sign of life for {self.silence_s_max:g} s")
                await asyncio.wait((pull.over,), timeout=left_s)
            pull.over.result()
        finally:
            self._pulling = None
            if not pull.over.cancel():
                pull.over.exception()  # an error counts as seen, also when the reading is stopped just now

    def _received(self, message: Msg | None) -> None:
        """Called with everything that comes, in order."""
        self._heard_s = asyncio.get_running_loop().time()
        self._broke = self._broke or message is None
        pull = self._pulling
        if pull is None or pull.over.done():
            return  # what comes after an error is asked for again
        try:
            if self._completes(pull, message):
                pull.over.set_result(None)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the pull's
            pull.over.set_exception(error)

    def _completes(self, pull: _Pull, message: Msg | None) -> bool:
        """Take what came; whether the pull ends with it. Raises `Interrupted` and what ends the reading."""
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
        """A consumer may be wrong; before reading goes on, the stream is asked."""
        self._gap_at = self.next_sequence
        raise Interrupted(f"message {sequence} came where {self.next_sequence} was due")
