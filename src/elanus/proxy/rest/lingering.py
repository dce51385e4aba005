"""Closing a connection on which a request is still arriving, so that its answer is received.

A request may be answered before all of it has arrived: its body is larger than the limit, or its head is. If
its connection were closed then, the kernel would answer what still arrives with a reset, and the client
would lose the answer: most clients send the whole body before they read. So the answer is sent, the
connection is closed in this direction only, and what arrives is thrown away until the client closes it. That
takes a limited time, and a limited number of bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

LINGER_S = 60.0
"""How long what arrives is thrown away. As long as a body may take."""
IDLE_S = 5.0
"""How long the client may send nothing meanwhile."""
LINGER_MAX_BYTES = 1024 * 1024 * 1024
"""How much is thrown away: half a second of processor time, in pieces."""


class LingeringTransport(asyncio.Transport):
    """A transport whose `close` takes its time while a request is arriving.

    ``is_arriving``: returns whether one is. The protocol passes on what arrives to `throw_away` while
    ``lingers``. Belongs to the event loop.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, is_arriving: Callable[[], bool]
    ) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._is_arriving = is_arriving
        self._left_bytes = LINGER_MAX_BYTES
        self._until_s = 0.0
        self._arrived_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def lingers(self) -> bool:
        return self._timer is not None

    def close(self) -> None:
        if self.lingers:
            return
        if self._transport.is_closing() or not self._is_arriving():
            self._transport.close()
            return
        if self._transport.can_write_eof():  # TLS cannot
            self._transport.write_eof()
        self._transport.resume_reading()
        self._arrived_s = self._loop.time()
        self._until_s = self._arrived_s + LINGER_S
        self._timer = self._loop.call_later(IDLE_S, self._look)

    def throw_away(self, data: bytes) -> None:
        self._arrived_s = self._loop.time()
        self._left_bytes -= len(data)
        if self._left_bytes < 0:
            self.close_now()

    def _look(self) -> None:
        now_s = self._loop.time()
        until_s = min(self._until_s, self._arrived_s + IDLE_S)
        if now_s >= until_s:
            self.close_now()
        else:
            self._timer = self._loop.call_at(until_s, self._look)

    def close_now(self) -> None:
        """Close whatever arrives."""
        if self._timer is not None:
            self._timer.cancel()
        self._transport.close()

    def is_closing(self) -> bool:
        return self.lingers or self._transport.is_closing()

    # the rest is that of the transport

    def abort(self) -> None:
        self._transport.abort()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._transport.write(data)

    def pause_reading(self) -> None:
        if not self.lingers:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._transport.get_protocol()
