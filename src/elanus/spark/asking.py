"""Calls to the server from the driver, or from any program that reads the files itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from elanus.api.connector import ConnectorApi
from elanus.rpc.carrier import RpcChannel
from elanus.spark.options import ReadOptions, WriteOptions

_ANSWER_S = 120.0
T = TypeVar("T")


def ask(options: ReadOptions | WriteOptions, call: Callable[[ConnectorApi], Awaitable[T]]) -> T:
    """Make one call, over a connection of its own. Raises the server's errors."""
    if options.security is not None:
        options.security.check()

    async def asked() -> T:
        channel = RpcChannel(options.address, security=options.security, token=options.token)
        try:
            await channel.ready(options.connect_s)
            server: Any = channel.client(ConnectorApi, timeout_s=_ANSWER_S)
            return await call(server)
        finally:
            await channel.close()

    return asyncio.run(asked())
