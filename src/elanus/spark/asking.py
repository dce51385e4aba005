"""Calls to the server from the driver, or from any program that reads the files itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog

from elanus.api.connector import ConnectorApi
from elanus.core.errors import DeadlineExceeded, NotReady, Unavailable
from elanus.rpc.carrier import RpcChannel
from elanus.spark.options import ReadOptions, WriteOptions

_ANSWER_S = 120.0
_AGAIN_S = 0.25
_SILENCE_MAX_S = 300.0
_log = structlog.get_logger("spark")
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


def answered(call: Callable[[], T]) -> T:
    """Make a call that may be repeated. A server that does not answer is asked again for five minutes: it may
    be restarting. Raises what the call raises."""
    until_s = time.monotonic() + _SILENCE_MAX_S
    while True:
        try:
            return call()
        except (Unavailable, DeadlineExceeded, NotReady) as error:
            if time.monotonic() >= until_s:
                raise
            _log.info("the server does not answer; asking again", error=error.message)
            time.sleep(_AGAIN_S)
