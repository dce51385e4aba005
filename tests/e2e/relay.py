"""A cable between two processes on one machine, as bad as a test wants it: slow, lossy, cut, dead.

Kernels differ in what they can do to a network; a relay of TCP connections works with all of them. A lost
packet holds back everything behind it in TCP until it is sent again, and so it does in the relay.
Within a connection the order stays, as TCP keeps it.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
_CHUNK_BYTES = 64 * 1024
_QUEUED_CHUNKS_MAX = 64
_CALL_S = 10.0


@dataclass(frozen=True)
class Quality:
    """A cable's properties, in each direction. Every piece is late by ``delay_ms`` and, exponentially
    distributed, by ``jitter_ms`` on the average; ``loss_percent`` of them are lost at first, which costs
    ``resend_ms``."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss_percent: float = 0.0
    resend_ms: float = 200.0

    def late_s(self, chance: random.Random) -> float:
        late_ms = self.delay_ms
        if self.jitter_ms:
            late_ms += chance.expovariate(1 / self.jitter_ms)
        if chance.random() * 100 < self.loss_percent:
            late_ms += self.resend_ms
        return late_ms / 1000


GOOD = Quality()


class Relay:
    """Listens on ``host`` and ``port`` (0: any), and leads to ``target``, a ``HOST:PORT``.

    It runs in a thread of its own, and is controlled from another.
    """

    def __init__(self, target: str, *, host: str = "127.0.0.1", port: int = 0, seed: int = 1) -> None:
        self._target_host, _, self._target_port = target.rpartition(":")
        self._chance = random.Random(seed)
        self._quality = GOOD
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self._flows = asyncio.Event()
        self._flows.set()
        self.carried_bytes = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"relay to {target}", daemon=True)
        self._thread.start()
        self._server = self._call(self._listen(host, port))
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname())

    def set(self, quality: Quality) -> None:
        """From now on it is like that."""
        self._quality = quality

    def cut(self) -> None:
        """End every connection, and end new ones at once, until `repair`."""
        self._call(self._cut())

    def stall(self) -> None:
        """Carry nothing, and give no error, until `repair`: what a cable does that was pulled out."""
        self._call(self._stall())

    def repair(self) -> None:
        self._call(self._repair())

    def close(self) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_S)

    async def _listen(self, host: str, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._connected, host, port)

    async def _cut(self) -> None:
        self._is_cut = True
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _stall(self) -> None:
        self._flows.clear()

    async def _repair(self) -> None:
        self._is_cut = False
        self._flows.set()

    async def _close(self) -> None:
        self._server.close()
        await self._cut()
        own = asyncio.current_task()
        carrying = [task for task in asyncio.all_tasks() if task is not own]
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        there: asyncio.StreamWriter | None = None
        try:
            await self._flows.wait()
            if self._is_cut:
                return
            answers, there = await asyncio.open_connection(self._target_host, int(self._target_port))
            self._writers.add(there)
            async with asyncio.TaskGroup() as both:
                self._carry(both, reader, there)
                self._carry(both, answers, writer)
        except* OSError:
            pass  # one end is gone: so is the other, below
        finally:
            for ended in (writer, there):
                if ended is not None:
                    self._end(ended)

    def _end(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.transport.abort()

    def _carry(
        self, group: asyncio.TaskGroup, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One direction, until it ends."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_QUEUED_CHUNKS_MAX)
        group.create_task(self._take(reader, under_way))
        group.create_task(self._deliver(under_way, writer))

    async def _take(
        self, reader: asyncio.StreamReader, under_way: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        due_s = 0.0
        data = b"begin"
        while data:
            data = await reader.read(_CHUNK_BYTES)
            due_s = max(due_s, self._loop.time() + self._quality.late_s(self._chance))
            await under_way.put((due_s, data))

    async def _deliver(
        self, under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        while True:
            due_s, data = await under_way.get()
            await asyncio.sleep(max(0.0, due_s - self._loop.time()))
            await self._flows.wait()
            if not data:
                writer.write_eof()
                return
            self.carried_bytes += len(data)
            writer.write(data)
            await writer.drain()
