"""One reader per pchannel for all vchannels that a process follows.

A vchannel joins the reader that has come nearest to the vchannel's checkpoint without passing it. If all have
passed it, the vchannel gets a reader of its own, which reads on until it is as far as the next one; then the
two become one (`elanus.log.shared_reader`). So there is one reader per pchannel, and a few more while
vchannels that were followed later catch up.

The dispatcher forgets nothing that it could not read again: a vchannel whose reading failed is followed again
from the seek point of its subscription.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from elanus.core.catalog import Checkpoint
from elanus.core.channels import pchannel_of
from elanus.core.errors import ElanusError
from elanus.core.faults import LogFault
from elanus.log.port import Position, RewoundLog, rewound_text
from elanus.log.shared_reader import LogSource, PackListener, SharedReader, Subscription

Spawn = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]


def _spawn(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    return asyncio.create_task(work, name=name)


class Dispatcher:
    """Belongs to one event loop.

    ``headers_only``: payloads are not read. ``ticked``: called after each step in which a pchannel's tick has
    moved. ``spawn``: creates the task of a reader, which has a name.
    """

    def __init__(
        self,
        log: LogSource,
        *,
        headers_only: bool = False,
        ticked: Callable[[], None] = lambda: None,
        spawn: Spawn = _spawn,
    ) -> None:
        self._log = log
        self._headers_only = headers_only
        self._ticked = ticked
        self._spawn = spawn
        self._readers: dict[str, list[SharedReader]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._checks: set[asyncio.Task[None]] = set()
        self.waiting_bytes = 0
        """Payloads in memory that wait for their tick. May be read by any thread."""

    @property
    def readers(self) -> int:
        """How many readers are open."""
        return sum(len(self._of(pchannel)) for pchannel in self._readers)

    def seeks(self) -> dict[str, int]:
        """Return from where each pchannel would be read again, for all vchannels that follow their reader."""
        return {
            pchannel: min(reader.line.seek.position for reader in readers)
            for pchannel in self._readers
            if (readers := self._of(pchannel))
        }

    def follow(self, vchannel: str, start: Checkpoint, listener: PackListener) -> Subscription:
        """Hand the vchannel's packs from the checkpoint on to ``listener``, beginning in a later step."""
        reader = self._reader_for(pchannel_of(vchannel), start)
        subscription = Subscription(vchannel, start, listener, reader.line)
        reader.add(subscription)
        if self._seems_missing(subscription) is not None:
            check = self._spawn(self._check(subscription), f"check {vchannel}")
            self._checks.add(check)
            check.add_done_callback(self._checks.discard)
        return subscription

    def stop(self) -> Sequence[asyncio.Task[None]]:
        """Follow nothing any more. Returns tasks that have been cancelled and may not have ended."""
        for readers in self._readers.values():
            for reader in readers:
                for subscription in reader.subscriptions():
                    subscription.close()
        self._readers.clear()
        for check in self._checks:
            check.cancel()
        return (*self._ending, *self._checks)

    async def close(self) -> None:
        """As `stop`; returns when nothing runs any more."""
        await asyncio.gather(*self.stop(), return_exceptions=True)

    def _seems_missing(self, subscription: Subscription) -> Position | None:
        """Return where the log ends, if it seems to end before the subscription's start."""
        pchannel, start = pchannel_of(subscription.vchannel), Position(subscription.start.position)
        with suppress(LogFault):  # its reader meets the same
            return self._log.missing_from(pchannel, start)
        return None

    async def _check(self, subscription: Subscription) -> None:
        """Fail a subscription if the log ends before its start. Its reader, which may serve others that begin
        earlier, would wait there."""
        pchannel = pchannel_of(subscription.vchannel)
        with suppress(LogFault, ElanusError):  # its reader meets the same
            await self._log.sync(pchannel)
            end = self._seems_missing(subscription)
            if end is not None and subscription.reader is not None:
                subscription.fail(RewoundLog(rewound_text(pchannel, subscription.start.position, end)))

    def _reader_for(self, pchannel: str, start: Checkpoint) -> SharedReader:
        """Return the reader that is nearest before the checkpoint; a new one if there is none."""
        behind = [r for r in self._of(pchannel) if r.position <= start.position]
        return max(behind, key=lambda r: r.position) if behind else self._open(pchannel, start)

    def _of(self, pchannel: str) -> list[SharedReader]:
        """Return the pchannel's readers that serve anybody; one that does not is about to end."""
        return [r for r in self._readers.get(pchannel, ()) if len(r)]

    def _open(self, pchannel: str, start: Checkpoint) -> SharedReader:
        reader = SharedReader(pchannel, start, self._next_ahead, self._ticked, self._weigh)
        self._readers.setdefault(pchannel, []).append(reader)
        task = self._spawn(self._run(reader), f"read {pchannel}")
        reader.task = task
        self._ending.add(task)
        task.add_done_callback(lambda done: self._ended(reader, done))
        return reader

    def _ended(self, reader: SharedReader, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        self._weigh(-reader.waiting_bytes)
        self._forget(reader)

    def _weigh(self, change_bytes: int) -> None:
        self.waiting_bytes += change_bytes

    def _forget(self, reader: SharedReader) -> None:
        readers = self._readers.get(reader.pchannel, [])
        if reader in readers:
            readers.remove(reader)
            if not readers:
                del self._readers[reader.pchannel]

    def _next_ahead(self, reader: SharedReader) -> SharedReader | None:
        ahead = [r for r in self._of(reader.pchannel) if r is not reader and r.position >= reader.position]
        return min(ahead, key=lambda r: r.position, default=None)

    async def _run(self, reader: SharedReader) -> None:
        try:
            await reader.run(self._log, headers_only=self._headers_only)
        except Exception as error:  # noqa: BLE001 - every vchannel that is followed through it gets the error
            self._forget(reader)  # it takes nobody any more
            self._fail(reader, error)

    def _fail(self, reader: SharedReader, error: Exception) -> None:
        """Report the error to each vchannel. Those that begin further on are not concerned by it."""
        failed = []
        for subscription in sorted(reader.subscriptions(), key=lambda s: s.start.position):
            if subscription.start.position > reader.position:
                reader.hand_over(subscription, self._reader_for(reader.pchannel, subscription.start))
            else:
                subscription.close()
                failed.append(subscription)
        reader.move_watchers()
        for subscription in failed:
            subscription.listener.failed(error)
