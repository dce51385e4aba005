"""Appends of one process to one pchannel: in order, each exactly once.

Appends that are queued while a group is in flight form the next group. So one group is in flight at a time, a
single append waits for one answer, and a thousand concurrent ones hardly longer. A group of one message
is published as it is, a larger one as an atomic batch: all of it or nothing, and nothing in between.

An append of more messages than a batch holds is a group of several batches, each of whole entries. Entries of
other processes may stand between them, and if a later batch fails, the earlier ones remain. Readers need no
more: all entries of a write have one timestamp, which no tick passes before the write has ended.

**Exactly once.** A writer publishes under a subject of its own, and each group names the sequence of the
last message of that subject. When an answer is lost, the writer looks up its last message in the stream. If
that is of the earlier group, the group is published again; if it is of this group, the group is stored. The
first copy may still be on its way, but only one of two copies that name the same last message is ever
accepted. This holds however long the servers were unavailable; a window of remembered message ids would not.

A log is trimmed only up to what every reader has finished with, which excludes unanswered writes: a write
keeps its channel's ticks below it. So if a subject has no messages, all of its answered groups were trimmed.

**Fences.** The process that counts a writer out publishes a *fence* under its subject, if that has a message.
The groups that the writer publishes after it name an earlier message, and are refused; the writer finds the
fence and ends. So no group of a writer that can be fenced may name no message. Where its subject has none, at
first or after a trim, the writer puts an *opening* there, and then has its session confirmed. If the fencing
process looked before the opening came, the session had ended by then, and nothing follows the opening. If it
looked later, it found the opening, and the fence refuses the group. If all this was trimmed meanwhile, the
group names a message that is no longer there, and is refused too.
"""

from __future__ import annotations

import asyncio
import base64
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from elanus.core.errors import ElanusError, Internal, InvalidParameter, NoSession, PartlyWritten, Unavailable
from elanus.log.jetstream.messages import (
    BATCH_MESSAGES_MAX,
    OutgoingMessage,
    Place,
    batch_of,
    is_fence,
    messages_of,
    opening_headers,
    parse_headers,
    place_of,
)
from elanus.log.port import NewEntry, Position
from elanus.nats.connection import Interrupted, NatsConnection, Refused, Unanswered, client_error, decoded
from elanus.nats.messages import IncomingMessage

_GROUP_BYTES_MAX = 8 * 1024 * 1024
_RETRY_S = 0.1
_ANSWER_TIMEOUT_S = 5.0
_SLOWEST_BYTES_PER_S = 10_000_000
_MAY_GO_AGAIN = frozenset({10071, 10164, 10176, 10210})
"""Wrong last sequence, an incomplete batch, too many batches in flight."""
_NO_MESSAGE = 10037
_EXPECTED_LAST = "Nats-Expected-Last-Subject-Sequence"
_STORES_NOTHING = (
    "NATS answers, but stores nothing: see that the disks of its servers have room; one whose disk was full "
    "stores nothing until it is restarted"
)
_logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Append:
    entries: Sequence[NewEntry]
    answer: asyncio.Future[Sequence[Position]]
    payload_bytes: int


class StreamWriter:
    """``stored`` is called with each stored batch's last sequence and payload size in bytes."""

    def __init__(
        self,
        connection: NatsConnection,
        stream: str,
        subject: str,
        timeout_s: float,
        check_stream: Callable[[], Awaitable[None]],
        stored: Callable[[int, int], None],
        confirm: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """``subject``: used by no other writer, except for fences. ``timeout_s``: how long storing a group is
        tried. ``check_stream``: creates the stream, and raises if it must not be written to. Called before
        the first group, after each attempt that failed, and after `check_again`. ``confirm``: as in
        `elanus.log.port.FencingLog.appender`."""
        self._connection = connection
        self._stream = stream
        self._subject = subject
        self._timeout_s = timeout_s
        self._check_stream = check_stream
        self._is_checked = False
        self._has_stream = False
        self._stored = stored
        self._queue: deque[_Append] = deque()
        self._task: asyncio.Task[None] | None = None
        self._group = 0
        self._last = 0
        self._confirm = confirm
        self._is_confirmed = confirm is None
        """Whether the session was confirmed after the last opening."""
        self._fenced = ""

    def append(self, entries: Sequence[NewEntry]) -> asyncio.Future[Sequence[Position]]:
        """Queue an append; the future gets its positions, or an `ElanusError`, or a `ValueError`."""
        size = sum(memoryview(part).nbytes for entry in entries for part in entry.payload)
        answer: asyncio.Future[Sequence[Position]] = asyncio.get_running_loop().create_future()
        self._queue.append(_Append(entries, answer, size))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"append to {self._stream}")
        return answer

    def check_again(self) -> None:
        """Check the stream before the next group: it may have been replaced."""
        self._is_checked = False

    async def finish(self) -> None:
        """Return when everything queued has its answer."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while self._queue:
            appends, messages = self._take()
            if not appends:
                continue
            sequences: list[int] = []
            try:
                await self._store(messages, sequences)
            except ElanusError as error:
                begun = sum(message.begins_entry for message in messages[: len(sequences)])
                is_partly = begun > 0 and len(appends) == 1
                _fail(appends, self._partly(appends[0], begun, error) if is_partly else error)
            except Exception as error:
                _logger.exception("append failed unexpectedly", stream=self._stream)
                _fail(appends, Internal(f"appending to {self._stream} failed: {error!r}"))
            else:
                _answer(appends, messages, sequences)

    def _take(self) -> tuple[list[_Append], list[OutgoingMessage]]:
        """Return the next group. Appends that cannot be encoded as messages are answered at once."""
        self._group += 1
        appends: list[_Append] = []
        messages: list[OutgoingMessage] = []
        size_bytes = 0
        while self._queue:
            append = self._queue[0]
            if appends and size_bytes + append.payload_bytes > _GROUP_BYTES_MAX:
                break
            try:
                more = messages_of(
                    append.entries, self._group, len(messages), self._connection.payload_max_bytes
                )
            except (ValueError, InvalidParameter) as error:
                _fail([self._queue.popleft()], error)
                continue
            if appends and len(messages) + len(more) > BATCH_MESSAGES_MAX:
                break
            appends.append(self._queue.popleft())
            messages += more
            size_bytes += append.payload_bytes
        return appends, messages

    async def _store(self, messages: Sequence[OutgoingMessage], sequences: list[int]) -> None:
        """Publish a group until it is stored. Raises `ElanusError`.

        ``sequences``: of the messages that are known to be stored, whole entries. Empty at first.
        """
        if self._fenced:
            raise NoSession(self._fenced)
        deadline_s = time.monotonic() + self._timeout_s
        why: object = "no answer"
        wait_s = 0.0  # the first attempt may only have failed by naming a last message that is trimmed
        while time.monotonic() < deadline_s:
            try:
                await self._connection.ready(deadline_s - time.monotonic())
                if not self._is_checked:
                    await self._check_stream()
                    self._is_checked = self._has_stream = True
                while len(sequences) < len(messages):
                    batch = batch_of(messages, len(sequences))
                    await self._open()
                    self._last = last = await self._publish(batch)
                    sequences += range(last - len(batch) + 1, last + 1)
                    self._stored(last, _size_bytes(batch))
                return
            except Interrupted as interruption:
                why, self._is_checked = interruption, False
            except Refused as refusal:
                self._is_checked = False
                if refusal.code not in _MAY_GO_AGAIN:
                    raise client_error(refusal, f"an append to {self._stream}") from None
                why = refusal
            try:
                if self._has_stream and await self._find_stored(messages, sequences):
                    return
                if isinstance(why, Unanswered):
                    why = _STORES_NOTHING
            except Interrupted as interruption:
                why = interruption
            await asyncio.sleep(wait_s)
            wait_s = _RETRY_S
        raise Unavailable(
            f"the log did not acknowledge an append to {self._stream} within {self._timeout_s:g} s ({why}); "
            "whether it was stored is not known"
        )

    async def _open(self) -> None:
        """Return when the next group names a message that a fence would follow. Does nothing for a writer
        that is never fenced. Raises `Interrupted`, `Refused`, and what ``confirm`` raises."""
        if self._confirm is None:
            return
        if not self._last:
            self._is_confirmed = False
            headers = {**opening_headers(), _EXPECTED_LAST: "0"}
            answer = await self._connection.request(self._subject, b"", headers, _ANSWER_TIMEOUT_S)
            self._last = int(decoded(answer.data)["seq"])
            self._stored(self._last, 0)
        if not self._is_confirmed:
            await self._confirm()
            self._is_confirmed = True

    async def _publish(self, messages: Sequence[OutgoingMessage]) -> int:
        """Publish the messages. Returns the last one's sequence. Raises `Interrupted`, `Refused`."""
        batch = uuid.uuid4().hex
        for number, message in enumerate(messages, 1):
            headers = dict([message.header])
            if number == 1:
                headers[_EXPECTED_LAST] = str(self._last)
            if len(messages) > 1:
                headers["Nats-Batch-Id"] = batch
                headers["Nats-Batch-Sequence"] = str(number)
            if number < len(messages):
                await self._connection.publish(self._subject, message.payload, headers)
        if len(messages) > 1:
            headers["Nats-Batch-Commit"] = "1"
        timeout_s = _ANSWER_TIMEOUT_S + _size_bytes(messages) / _SLOWEST_BYTES_PER_S
        answer = await self._connection.request(self._subject, messages[-1].payload, headers, timeout_s)
        return int(decoded(answer.data)["seq"])

    async def _find_stored(self, messages: Sequence[OutgoingMessage], sequences: list[int]) -> bool:
        """Determine how much of the group is stored, and record it. Returns whether all of it is.

        Raises `Interrupted`, `Unavailable`, and `NoSession` if there is a fence: what was stored before it
        counts, but how much that is cannot be found out any more.
        """
        known = len(sequences)
        found = await self._last_stored()
        self._last, place = found or (0, None)
        stored = place.index + 1 if place is not None and place.group == self._group else 0
        del sequences[stored:]  # an older copy of the stream may have been put in its place
        sequences += range(self._last - stored + len(sequences) + 1, self._last + 1)
        while sequences and not messages[len(sequences) - 1].ends_entry:
            sequences.pop()  # an entry without its end is written again as a whole
        if len(sequences) > known:
            self._stored(sequences[-1], _size_bytes(messages[known : len(sequences)]))
        return len(sequences) == len(messages)

    def _partly(self, append: _Append, stored: int, error: ElanusError) -> PartlyWritten:
        """Return the error of an append of which ``stored`` entries are in the stream."""
        return PartlyWritten(
            f"{stored} of {len(append.entries)} entries of an append to {self._stream} were stored before it "
            f"failed: {error.message}",
            is_certain=False,
        )

    async def _last_stored(self) -> tuple[int, Place] | None:
        """This writer's last message in the stream. Raises `Interrupted`, `Unavailable`, `NoSession`."""
        try:
            answer = await self._connection.api(
                f"STREAM.MSG.GET.{self._stream}", {"last_by_subj": self._subject}
            )
        except Refused as refusal:
            if refusal.code == _NO_MESSAGE:
                return None
            raise client_error(refusal, f"a lookup in {self._stream}") from None
        message = answer["message"]
        headers = parse_headers(base64.b64decode(message["hdrs"]))
        if is_fence(headers):
            self._fenced = (
                "the others have counted this node out, since its session had ended: it has to join again "
                f"under a new id; whether an append to {self._stream} was stored before that is not known"
            )
            raise NoSession(self._fenced)
        return message["seq"], place_of(IncomingMessage(message["seq"], headers, None))


def _answer(
    appends: Sequence[_Append], messages: Sequence[OutgoingMessage], sequences: Sequence[int]
) -> None:
    begins = (Position(s) for s, message in zip(sequences, messages, strict=True) if message.begins_entry)
    for append in appends:
        positions = [next(begins) for _ in append.entries]
        if not append.answer.done():
            append.answer.set_result(positions)


def _fail(appends: Sequence[_Append], error: Exception) -> None:
    for append in appends:
        if not append.answer.done():
            append.answer.set_exception(error)


def _size_bytes(messages: Sequence[OutgoingMessage]) -> int:
    return sum(len(message.payload) for message in messages)
