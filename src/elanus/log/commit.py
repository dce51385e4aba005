"""Group commit: one thread that writes for every pchannel.

It takes everything in the queue, writes it with one call per touched file, waits for stable storage once
per touched file, and only then answers the callers. So a single append costs one fsync, and a thousand
concurrent ones cost hardly more. Checksums and writes happen here, off the event loops.

Appends that need not be durable are visible as soon as they are written. They become durable with the
next durable append of their pchannel, or when the oldest of them has waited for the sync delay. Then
all waiting appends are synced together, so an idle log wakes up at most once per delay, and a silent one
never.
"""

from __future__ import annotations

import asyncio
import errno
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from elanus.core.errors import DiskFull, ElanusError, Internal, Unavailable
from elanus.core.messages import WRITES
from elanus.log.channel import Channel
from elanus.log.port import NewEntry, Position
from elanus.log.writer import UNSYNCED_MAX_BYTES, PchannelWriter

_logger = structlog.get_logger(__name__)

_GROUP_BYTES_MAX = 16 * 1024 * 1024
"""The payload size at which a group is closed, which bounds how long its first append waits for its last."""
_GROUP_REQUESTS_MAX = 1024


@dataclass(slots=True)
class WritableChannel:
    """The two sides of a pchannel: the readers' view, and the files."""

    channel: Channel
    writer: PchannelWriter


@dataclass(slots=True)
class Request:
    """An append (or, without entries, a sync), and the future of its caller.

    The future gets the entries' positions, or the end for a sync.
    """

    target: WritableChannel
    entries: Sequence[NewEntry]
    durable: bool
    future: asyncio.Future[Any]
    payload_bytes: int = field(init=False)
    has_only_writes: bool = field(init=False)

    def __post_init__(self) -> None:
        self.has_only_writes = all(entry.header.kind in WRITES for entry in self.entries)
        self.payload_bytes = sum(memoryview(part).nbytes for e in self.entries for part in e.payload)


@dataclass(slots=True)
class Chore:
    """Something else for the writer thread to do, between two groups."""

    target: WritableChannel
    action: Callable[[PchannelWriter], None]
    future: asyncio.Future[Any]


Outcome = tuple[asyncio.Future[Any], Any]
"""A future and its result; an exception instance is raised in the waiter."""


class GroupCommit:
    def __init__(self, sync_delay_ms: int) -> None:
        self._sync_delay_s = sync_delay_ms / 1000
        self._queue: queue.SimpleQueue[Request | Chore | None] = queue.SimpleQueue()
        self._sync_due_s: float | None = None
        self._unsynced: dict[str, WritableChannel] = {}
        self._thread = threading.Thread(target=self._run, name="elanus-log-writer", daemon=True)
        self._thread.start()

    def submit(self, item: Request | Chore) -> None:
        self._queue.put(item)

    def stop(self) -> None:
        """Return when everything submitted so far is done and the thread has ended."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            group, last = self._take()
            try:
                self._serve(group)
            except Exception as error:
                _logger.exception("log writer failed unexpectedly")
                for target in {id(item.target): item.target for item in group}.values():
                    target.writer.retract()
                failure = Internal(f"the log's writer failed: {error!r}")
                deliver((item.future, failure) for item in group)
            if last:
                return

    def _take(self) -> tuple[list[Request | Chore], bool]:
        """Return the queued work, and whether to end after it. Waits for the first item, or until a sync is
        due."""
        group: list[Request | Chore] = []
        size_bytes = 0
        try:
            item = self._queue.get(timeout=self._until_due_s())
            while True:
                if item is None:
                    return group, True
                group.append(item)
                if isinstance(item, Request):
                    size_bytes += item.payload_bytes
                if size_bytes >= _GROUP_BYTES_MAX or len(group) >= _GROUP_REQUESTS_MAX:
                    return group, False
                item = self._queue.get_nowait()
        except queue.Empty:
            return group, False

    def _until_due_s(self) -> float | None:
        return None if self._sync_due_s is None else max(0.0, self._sync_due_s - time.monotonic())

    def _serve(self, group: Sequence[Request | Chore]) -> None:
        by_pchannel: defaultdict[str, list[Request]] = defaultdict(list)
        for item in group:
            if isinstance(item, Request):
                by_pchannel[item.target.channel.name].append(item)
        waiting = [written for requests in by_pchannel.values() if (written := self._write(requests))]
        for written in waiting:
            self._sync(written)
        for item in group:
            if isinstance(item, Chore):
                self._do(item)
        if self._sync_due_s is not None and self._until_due_s() == 0:
            self._sync_overdue()

    def _write(self, requests: Sequence[Request]) -> _Written | None:
        """Write one pchannel's requests. Returns them if they have to wait for stable storage."""
        target = requests[0].target
        try:
            outcomes = target.writer.write([r.entries for r in requests])
        except OSError as error:
            _fail(target, requests, error)
            return None
        written = _Written(target, requests, outcomes)
        if any(r.durable for r in requests) or target.writer.unsynced_bytes > UNSYNCED_MAX_BYTES:
            return written
        self._unsynced[target.channel.name] = target
        if self._sync_due_s is None:
            self._sync_due_s = time.monotonic() + self._sync_delay_s
        written.publish()
        return None

    def _sync(self, written: _Written) -> None:
        try:
            written.target.writer.sync()
        except OSError as error:
            _fail(written.target, written.requests, error)
            return
        self._unsynced.pop(written.target.channel.name, None)
        if not self._unsynced:
            self._sync_due_s = None
        written.publish()

    def _sync_overdue(self) -> None:
        overdue, self._unsynced, self._sync_due_s = self._unsynced, {}, None
        for target in overdue.values():
            try:
                target.writer.sync()
            except OSError as error:
                _logger.error("ticks not made durable", pchannel=target.channel.name, error=str(error))
                target.writer.retract()

    def _do(self, chore: Chore) -> None:
        try:
            chore.action(chore.target.writer)
        except OSError as error:
            deliver([(chore.future, _client_error(error))])
            return
        bells = chore.target.channel.publish(chore.target.writer.spans(), can_wait=True)
        deliver([(chore.future, None), *((bell, None) for bell in bells)])


@dataclass(slots=True)
class _Written:
    """Requests of one pchannel that are written."""

    target: WritableChannel
    requests: Sequence[Request]
    outcomes: Sequence[list[Position] | ValueError]

    def publish(self) -> None:
        """Make them visible to readers, and wake the waiting appenders and readers together."""
        writer, channel = self.target.writer, self.target.channel
        writer.show()
        bells = channel.publish(writer.spans(), can_wait=all(r.has_only_writes for r in self.requests))
        writer.announce_end()
        results = (
            (r.future, outcome if r.entries else writer.visible)
            for r, outcome in zip(self.requests, self.outcomes, strict=True)
        )
        deliver([*results, *((bell, None) for bell in bells)])


def _fail(target: WritableChannel, requests: Sequence[Request], error: OSError) -> None:
    target.writer.retract()
    failure = _client_error(error)
    deliver((r.future, failure) for r in requests)


def _client_error(error: OSError) -> ElanusError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"no room left for the log: {error}; free disk space, then retry")
    return Unavailable(f"the log cannot be written: {error}; retry when the disk is back")


def deliver(outcomes: Iterable[Outcome]) -> None:
    """Settle futures on their own event loops: one call into each loop."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[Outcome]] = defaultdict(list)
    for future, result in outcomes:
        by_loop[future.get_loop()].append((future, result))
    for loop, settled in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, settled)
        except RuntimeError:
            _logger.debug("event loop closed before its log requests were answered", requests=len(settled))


def _settle(outcomes: Sequence[Outcome]) -> None:
    for future, result in outcomes:
        if future.done():  # abandoned by its caller, or already settled by an earlier wake-up
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
