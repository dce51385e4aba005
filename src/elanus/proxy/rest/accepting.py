"""Accepting the connections of the HTTP port: a few at a time, and never more than there may be.

asyncio's own server accepts all connections that wait before it looks at any of them, and counts none that
has not completed its TLS handshake. So a client that opened enough of them took all files that the process
may have open, those of its log and its segments too. And it logs an error for each one that it could not
accept.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable

_AT_ONCE = 8
"""Connections accepted before others are served, and refused ones closed."""
_PAUSE_S = 1.0
"""How long none is accepted after the system has refused one: for lack of files or of memory."""


class Acceptor:
    """Serves a listening socket from now on, until `close`: what uvicorn uses of an `asyncio.Server`.

    ``make_protocol``: for a connection that is complete. ``connected``: returns how many there are, of which
    ``most`` are kept (None: any number). One that is still in its TLS handshake gives way to a new one, the
    oldest first: who wants to speak says hello at once. ``refused``: called for each one that is not served.
    """

    def __init__(
        self,
        make_protocol: Callable[[], asyncio.Protocol],
        listener: socket.socket,
        *,
        tls: ssl.SSLContext | None,
        hello_wait_s: float,
        goodbye_wait_s: float,
        connected: Callable[[], int],
        most: int | None,
        refused: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._make_protocol = make_protocol
        self._listener = listener
        self._tls = tls
        self._hello_wait_s = hello_wait_s
        self._goodbye_wait_s = goodbye_wait_s
        self._connected = connected
        self._most = most
        self._refused = refused
        self._greeting: dict[asyncio.Task[None], socket.socket | None] = {}
        """Those that are not complete, the oldest first; with the socket of one that has not begun."""
        self._resuming: asyncio.TimerHandle | None = None
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Accept no more connections. Those that are complete stay."""
        self._pause()
        while self._greeting:
            self._give_up_oldest()

    async def wait_closed(self) -> None:
        """The server has no end of its own: its connections are the caller's."""

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._refused()
                self._pause()
                self._resuming = self._loop.call_later(_PAUSE_S, self._resume)
                return
            if self._tls is not None:
                self._make_room()
            accepted.setblocking(False)
            task = self._loop.create_task(self._greet(accepted))
            self._greeting[task] = accepted
            task.add_done_callback(lambda task: self._greeting.pop(task, None))

    def _make_room(self) -> None:
        while self._greeting and self._most is not None:
            if self._connected() + len(self._greeting) < self._most:
                return
            self._give_up_oldest()
            self._refused()

    def _give_up_oldest(self) -> None:
        oldest = next(iter(self._greeting))
        waiting = self._greeting.pop(oldest)
        oldest.cancel()
        if waiting is not None:  # nobody else has it
            waiting.close()

    async def _greet(self, accepted: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._greeting[task] = None
        waits = {"ssl_handshake_timeout": self._hello_wait_s, "ssl_shutdown_timeout": self._goodbye_wait_s}
        with contextlib.suppress(OSError):  # the client is gone, speaks no TLS, or is silent
            await self._loop.connect_accepted_socket(
                self._make_protocol, accepted, ssl=self._tls, **(waits if self._tls is not None else {})
            )

    def _pause(self) -> None:
        if self._resuming is not None:
            self._resuming.cancel()
        self._loop.remove_reader(self._listener)

    def _resume(self) -> None:
        self._loop.add_reader(self._listener, self._accept)
