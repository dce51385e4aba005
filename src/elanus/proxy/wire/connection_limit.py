"""The most client connections of a port, refused with a text that names the remedy.

gRPC has a limit too, but it closes a further connection without a word: clients see `Socket closed`, and many
try again until their time is over. So gRPC's limit is a few connections higher than ours. The calls of these
few are answered with the refusal; only connections beyond them are closed.

grpcio reports neither new nor closed connections; only a call has a peer. A peer is admitted with its first
call. When as many are known as may be, those whose connections are gone are forgotten, according to the
kernel's table. Connections without a call yet count for gRPC's limit only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import structlog

_TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_OPEN_STATES = frozenset({"01", "08"})
"""ESTABLISHED, and CLOSE_WAIT: the client has closed, the server has not yet."""
_SPARE_MAX = 64
_LOOK_S = 1.0
_LOG_S = 60.0
_log = structlog.get_logger("rpc")


def spare_connections(connections_max: int) -> int:
    """Return how many connections beyond a limit are accepted to be refused with a text."""
    return min(max(connections_max // 8, 1), _SPARE_MAX)


def accepted_max(connections_max: int) -> int:
    """Return gRPC's own limit for a limit of ours. Without the kernel's table they are the same."""
    return connections_max + (spare_connections(connections_max) if _TABLES[0].exists() else 0)


def too_many(connections_max: int) -> str:
    """Return the text of a refusal."""
    return (
        f"the server has {connections_max} client connections, and may have no more: close those that are "
        "not used, or raise proxy.connections_max and the server's limit of open files (ulimit -n, or "
        "LimitNOFILE of the systemd unit)"
    )


def connected_ports(port: int) -> set[int]:
    """Return the clients' ports of the open TCP connections to a local port."""
    found: set[int] = set()
    for table in _TABLES:
        if not table.exists():
            continue
        for line in table.read_text().splitlines()[1:]:
            _, local, remote, state, *_ = line.split()
            if state in _OPEN_STATES and int(local.rpartition(":")[2], 16) == port:
                found.add(int(remote.rpartition(":")[2], 16))
    return found


class RefusalLog:
    """Logs that a port refuses connections, once a minute. For one thread at a time."""

    def __init__(
        self, port_kind: str, connections_max: int, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._port_kind = port_kind
        self._connections_max = connections_max
        self._now_s = now_s
        self._logged_s = float("-inf")
        self._refused = 0

    def note(self) -> None:
        """A request was refused, or a connection closed."""
        self._refused += 1
        now_s = self._now_s()
        if now_s - self._logged_s >= _LOG_S:
            self._logged_s = now_s
            _log.warning(
                "client connections refused; raise proxy.connections_max and ulimit -n, or close unused ones",
                port=self._port_kind,
                connections_max=self._connections_max,
                refused=self._refused,
            )
            self._refused = 0


class ConnectionLimit:
    """Decides which connections' calls are answered. For any thread.

    ``connected``: returns the clients' ports of all open connections.
    """

    def __init__(
        self,
        connections_max: int,
        connected: Callable[[], set[int]],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connections_max = connections_max
        self._connected = connected
        self._now_s = now_s
        self._known: set[str] = set()
        self._lock = threading.Lock()
        self._looked_s = float("-inf")
        self._refusals = RefusalLog("grpc", connections_max, now_s)

    def check(self, context: grpc.ServicerContext) -> None:
        """Let a call pass, or end it with RESOURCE_EXHAUSTED."""
        peer = context.peer()
        if peer in self._known or self.admits(peer):
            return
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, too_many(self._connections_max))

    def admits(self, peer: str) -> bool:
        """Whether a peer's calls are answered. ``peer``: as gRPC names it; local sockets are not limited."""
        _, _, port = peer.rpartition(":")
        if not port.isdigit():
            return True
        with self._lock:
            if len(self._known) >= self._connections_max:
                self._forget_gone()
            if len(self._known) < self._connections_max:
                self._known.add(peer)
                return True
            self._refusals.note()
            return False

    def _forget_gone(self) -> None:
        """A look costs what there is in the kernel's table, so refusals share one."""
        now_s = self._now_s()
        if now_s - self._looked_s >= _LOOK_S:
            self._looked_s = now_s
            ports = self._connected()
            self._known = {peer for peer in self._known if int(peer.rpartition(":")[2]) in ports}
