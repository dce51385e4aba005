"""The carriers of calls between roles, for the tests that hold for each, and certificates for them."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import trustme

from elanus.rpc.carrier import RpcChannel, RpcServer
from elanus.rpc.local import LocalRole, local_client
from elanus.rpc.security import RpcSecurity

Serve = Callable[[type[Any], Any], AbstractAsyncContextManager[Any]]
"""Serves an implementation of an interface, and gives a client of it."""

LONG_AGO = {
    "not_before": datetime.datetime(2019, 1, 1, tzinfo=datetime.UTC),
    "not_after": datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
}


def security_of(
    directory: Path,
    cert: trustme.LeafCert,
    trusted: trustme.CA,
    server_name: str = "",
) -> RpcSecurity:
    """The files of one member: its certificate and key, and the CA that it trusts."""
    directory.mkdir(parents=True, exist_ok=True)
    files = RpcSecurity(directory / "cert.pem", directory / "key.pem", directory / "ca.pem", server_name)
    cert.private_key_pem.write_to_path(files.key)
    cert.cert_chain_pems[0].write_to_path(files.certificate)
    trusted.cert_pem.write_to_path(files.ca)
    return files


@asynccontextmanager
async def in_process(api: type[Any], target: Any) -> AsyncIterator[Any]:
    role = LocalRole("echo")
    role.up(target)
    yield local_client(role, api)


@asynccontextmanager
async def over_tcp(
    api: type[Any],
    target: Any,
    served: RpcSecurity | None = None,
    called: RpcSecurity | None = None,
    **options: Any,
) -> AsyncIterator[Any]:
    """``served`` and ``called``: the security of the server, and of the client."""
    server = RpcServer("127.0.0.1:0", [(api, target)], security=served)
    await server.start()
    channel = RpcChannel(f"127.0.0.1:{server.port}", security=called)
    try:
        yield channel.client(api, **options)
    finally:
        await channel.close()
        await server.stop(0)


@asynccontextmanager
async def over_socket(path: Path, api: type[Any], target: Any) -> AsyncIterator[Any]:
    server = RpcServer(f"unix:{path}", [(api, target)])
    await server.start()
    channel = RpcChannel(f"unix:{path}")
    try:
        yield channel.client(api)
    finally:
        await channel.close()
        await server.stop(0)
