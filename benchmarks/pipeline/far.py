"""A relay of TCP connections that makes a server on this machine seem far away.

Every piece of what a client sends arrives late by the same time, in order; answers are not delayed. So a
request takes that time longer, and the bandwidth stays what it is.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
_PIECE_BYTES = 256 * 1024
_PIECES_MAX = 64


class Far:
    """A context manager that listens on ``address``, and leads to ``target`` (both ``HOST:PORT``)."""

    def __init__(self, target: str, delay_ms: float) -> None:
        self._host, _, self._port = target.rpartition(":")
        self._delay_s = delay_ms / 1000
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="far", daemon=True)
        self.address = ""

    def __enter__(self) -> Far:
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._connected, "127.0.0.1", 0))
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _close(self) -> None:
        self._server.close()
        own = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not own]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there: asyncio.StreamWriter | None = None
        try:
            answers, there = await asyncio.open_connection(self._host, int(self._port))
            await asyncio.gather(_carry(reader, there, self._delay_s), _carry(answers, writer, 0.0))
        except (OSError, asyncio.CancelledError):
            pass  # one end has hung up, or all is closed: nobody waits for this task
        finally:
            writer.transport.abort()
            if there is not None:
                there.transport.abort()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Carry everything, and then the end, each ``delay_s`` after it has come."""
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_PIECES_MAX)
    clock = asyncio.get_running_loop().time

    async def read() -> None:
        piece = b"-"
        while piece:
            piece = await reader.read(_PIECE_BYTES)
            await pieces.put((clock() + delay_s, piece))

    reading = asyncio.ensure_future(read())
    try:
        while True:
            at_s, piece = await pieces.get()
            if (left_s := at_s - clock()) > 0:
                await asyncio.sleep(left_s)
            if not piece:
                writer.write_eof()  # answers may still come
                return
            writer.write(piece)
            await writer.drain()
    finally:
        reading.cancel()
