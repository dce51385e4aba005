"""The channel on which a proxy receives the answers to its reads, and the reads that wait for them.

The channel may be lost with its broker. Then all reads under way fail, and the proxy creates another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator

import structlog

from elanus.api.query_channel import DqResult, QueryChannels, decode_result
from elanus.core.errors import ChannelLost, ElanusError, Unavailable
from elanus.meta.tasks import cancel_and_wait
from elanus.proxy.fanout.pending import Gathering

_RETRY_PAUSE_S = 0.5
_log = structlog.get_logger("proxy")


class AnswerChannel:
    """``name``: of the channel; it changes when the channel is replaced.

    ``take``: called on the event loop with each result and the read it belongs to. `expecting` may be called
    from any thread; everything else runs on the loop.
    """

    def __init__(
        self, name: str, channels: QueryChannels, take: Callable[[Gathering, DqResult], None]
    ) -> None:
        self.name = name
        self._names = (f"{name}-{number}" for number in itertools.count(2))
        """Names for the channels that replace this one, one after the other."""
        self._channels = channels
        self._take = take
        self._numbers = itertools.count(1)
        self._gatherings: dict[int, Gathering] = {}
        self._removing: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._channels.create(self.name)
        self._task = asyncio.create_task(self._receive(), name="read results")

    async def stop(self, error: ElanusError) -> None:
        """Fail the reads under way with ``error``."""
        await cancel_and_wait(*self._removing, self._task)
        await self._remove(self.name)
        for gathering in self.awaited():
            gathering.fail(error)

    @contextlib.contextmanager
    def expecting(self, gathering: Gathering) -> Iterator[tuple[int, Gathering]]:
        """Collect the answers to a read inside the block. Yields the number for its request."""
        number = next(self._numbers)
        self._gatherings[number] = gathering
        try:
            yield number, gathering
        finally:
            del self._gatherings[number]

    def find(self, number: int) -> Gathering | None:
        return self._gatherings.get(number)

    def awaited(self) -> tuple[Gathering, ...]:
        return tuple(self._gatherings.values())

    async def _receive(self) -> None:
        while True:
            try:
                reader = await self._channels.open_reader(self.name, 0)
                while True:
                    _, data = await reader.next()
                    result = decode_result(data)
                    gathering = self._gatherings.get(result.request_id)
                    if gathering is not None:  # otherwise it is late: its read was given up
                        self._take(gathering, result)
            except ElanusError as error:
                _log.warning("answer channel lost", error=error.message)
                self._fail_reads()
                await asyncio.sleep(_RETRY_PAUSE_S)
                await self._recreate()

    def _fail_reads(self) -> None:
        """Fail all reads under way: their answers may have found no channel."""
        for gathering in self.awaited():
            gathering.fail(ChannelLost("the proxy's channel of answers was lost; retry"))

    async def _recreate(self) -> None:
        """Create a channel under a new name: the old one stays taken while its broker server is down."""
        removing = asyncio.create_task(self._remove(self.name), name="remove results")
        self._removing.add(removing)
        removing.add_done_callback(self._removing.discard)
        self.name = next(self._names)
        try:
            await self._channels.create(self.name)
        except ElanusError as error:
            _log.info("answer channel not created; trying again", error=error.message)
        else:
            self._fail_reads()

    async def _remove(self, name: str) -> None:
        """Remove a channel that nobody reads (any more)."""
        with contextlib.suppress(Unavailable):
            await self._channels.remove(name)
