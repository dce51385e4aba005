"""Calls of a running server from a command."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from elanus.cli.import_command import Server
from elanus.rpc.carrier import RpcChannel

A = TypeVar("A")
T = TypeVar("T")
_CONNECT_S = 10.0
_TIMEOUT_S = 120.0


def ask(server: Server, interface: type[A], call: Callable[[A], Awaitable[T]]) -> T:
    """Return what the call returns. Raises `elanus.core.errors.ElanusError`."""

    async def run() -> T:
        channel = RpcChannel(server.address, security=server.security, token=server.token)
        try:
            await channel.ready(_CONNECT_S)
            return await call(channel.client(interface, timeout_s=_TIMEOUT_S))
        finally:
            await channel.close()

    if server.security is not None:
        server.security.check()
    return asyncio.run(run())
