"""The server that a command works on, and calls of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from elanus.core.errors import Unauthenticated, Unavailable
from elanus.rpc.carrier import RpcChannel
from elanus.rpc.security import ClientSecurity
from elanus.rpc.tls_diagnosis import SPEAKS_TLS

A = TypeVar("A")
T = TypeVar("T")
_CONNECT_S = 10.0
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Server:
    """A proxy at host:port; ``security``: how its certificate is checked, None without TLS.

    ``token``: ``user:password``, "" where nobody signs in.
    """

    address: str
    security: ClientSecurity | None = None
    token: str = field(default="", repr=False)


@asynccontextmanager
async def connected(server: Server) -> AsyncIterator[RpcChannel]:
    """Connect to the server for the duration of the block.

    Raises `elanus.core.errors.ElanusError` for certificates that cannot be used, and if the server does not
    answer within 10 s.
    """
    if server.security is not None:
        server.security.check()
    channel = RpcChannel(server.address, security=server.security, token=server.token)
    try:
        await channel.ready(_CONNECT_S)
        yield channel
    except Unavailable as error:
        if SPEAKS_TLS not in error.message:
            raise
        raise Unavailable(
            f"{server.address}: {SPEAKS_TLS}: name the CA that signed its certificate with --tls-ca, "
            "and what it is issued for, if that is another host, with --tls-server-name; or, where the "
            "authorities of this machine signed it, give --uri https://HOST:PORT"
        ) from None
    except Unauthenticated as error:
        if server.token:
            raise
        raise Unauthenticated(f"{error.message}: sign in with --token or the variable ELANUS_TOKEN") from None
    finally:
        await channel.close()


def ask(server: Server, interface: type[A], call: Callable[[A], Awaitable[T]]) -> T:
    """Make one call and return its answer. Raises `elanus.core.errors.ElanusError`."""

    async def run() -> T:
        async with connected(server) as channel:
            return await call(channel.client(interface, timeout_s=_TIMEOUT_S))

    return asyncio.run(run())
