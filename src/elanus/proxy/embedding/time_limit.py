"""Requests over HTTP whose connection ends at a moment, whatever is being read from it.

A socket's timeout is one of each operation: a head, the length of a chunk or the text of an error that comes
byte by byte never exceeds it, nor does a server that says without end that it continues.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import threading
import urllib.request
from collections.abc import Callable
from types import TracebackType
from typing import Any


class TimeLimit:
    """A context that ends the connections it holds after ``seconds``. Their reader then finds their end.

    ``is_over``: whether it has. For any thread.
    """

    def __init__(self, seconds: float) -> None:
        self.is_over = False
        self._lock = threading.Lock()
        self._held: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> TimeLimit:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            for connection in self._held:
                connection.close()
            self._held.clear()

    def hold(self, connection: socket.socket) -> None:
        """Hold a connection through a descriptor of its own: it may be closed elsewhere meanwhile."""
        with self._lock:
            self._held.append(socket.socket(fileno=os.dup(connection.fileno())))
        if self.is_over:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self.is_over = True
            for connection in self._held:
                with contextlib.suppress(OSError):  # the other side has ended it
                    connection.shutdown(socket.SHUT_RDWR)


class LimitedRequest(urllib.request.Request):
    """A request whose connection ``limit`` holds, if one of `HANDLERS` opens it."""

    def __init__(self, url: str, body: bytes, headers: dict[str, str], limit: TimeLimit) -> None:
        super().__init__(url, body, headers, method="POST")
        self.limit = limit


class _Connection(http.client.HTTPConnection):
    limit: TimeLimit

    def connect(self) -> None:
        super().connect()
        self.limit.hold(self.sock)


class _SecureConnection(http.client.HTTPSConnection, _Connection):
    """Is held before its handshake, which takes its turn after `_Connection.connect`."""


def _opened_as(kind: type[_Connection], request: Any) -> Callable[..., _Connection]:
    def connection(host: str, **options: Any) -> _Connection:
        made = kind(host, **options)
        made.limit = request.limit
        return made

    return connection


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: Any) -> Any:
        return self.do_open(_opened_as(_Connection, req), req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: Any) -> Any:
        return self.do_open(_opened_as(_SecureConnection, req), req)


HANDLERS = (_Http, _Https)
"""They open requests of the class `LimitedRequest`."""
