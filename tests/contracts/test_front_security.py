"""TLS towards a server that shows a certificate and asks for none: as proxies serve Elanus's own clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import grpc
import pytest
import trustme
from rpc_carriers import LONG_AGO, security_of

from elanus.core.errors import InvalidParameter, Unavailable
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.guard import AllowAll
from elanus.proxy.access.permission import NO_PRIVILEGE, requires
from elanus.proxy.calls import Calls
from elanus.proxy.wire.interfaces import interface_handler, interface_operations
from elanus.rpc.carrier import RpcChannel
from elanus.rpc.security import ClientSecurity, FrontSecurity

NAME = "elanus.example"


class EchoApi(Protocol):
    async def echo(self, text: str) -> str: ...


class Echo:
    @requires(NO_PRIVILEGE)
    def echo(self, caller: Caller, text: str) -> str:
        return text


class World:
    """A CA, and the certificate that it has issued to the server."""

    def __init__(self, directory: Path, **validity: Any) -> None:
        self.directory = directory
        self.ca = trustme.CA()
        self.server = security_of(directory / "server", self.ca.issue_cert(NAME, **validity), self.ca)
        self.client = ClientSecurity(self.server.ca, NAME)

    def front(self) -> grpc.ServerCredentials:
        return FrontSecurity(self.server.certificate, self.server.key).server_credentials()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("certificates"))


@contextmanager
def serving(credentials: grpc.ServerCredentials | None) -> Iterator[str]:
    """The address of a server that answers in threads, as a client port does."""
    calls = Calls(interface_operations(EchoApi, Echo()), AllowAll(), lambda *_: None)
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((interface_handler(EchoApi, calls),))
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def call(credentials: grpc.ServerCredentials | None, security: ClientSecurity | None) -> str:
    async def ask(address: str) -> str:
        channel = RpcChannel(address, security=security)
        try:
            return await channel.client(EchoApi, timeout_s=None).echo("hello")
        finally:
            await channel.close()

    with serving(credentials) as address:
        return asyncio.run(ask(address))


def refused(credentials: grpc.ServerCredentials | None, security: ClientSecurity | None) -> str:
    with pytest.raises(Unavailable) as caught:
        call(credentials, security)
    assert "tls_ca" in caught.value.message, "the remedy is named"
    return caught.value.message


def test_a_client_that_knows_the_ca_and_the_name_is_served(world: World) -> None:
    world.client.check()
    assert call(world.front(), world.client) == "hello"


def test_a_certificate_for_the_address_needs_no_name(world: World, tmp_path: Path) -> None:
    own = security_of(tmp_path, world.ca.issue_cert("127.0.0.1"), world.ca)
    front = FrontSecurity(own.certificate, own.key).server_credentials()
    assert call(front, ClientSecurity(own.ca)) == "hello"


def test_the_name_is_checked(world: World) -> None:
    text = refused(world.front(), replace(world.client, server_name=""))
    assert "its certificate is refused: " in text
    assert "not valid for '127.0.0.1'" in text
    assert "tls_server_name" in text


def test_a_server_of_another_ca_is_refused(world: World, tmp_path: Path) -> None:
    other = World(tmp_path)
    assert "its certificate is refused: unable to get" in refused(world.front(), other.client)
    assert "its certificate is refused: unable to get" in refused(world.front(), ClientSecurity(None, NAME))


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    late = World(tmp_path, **LONG_AGO)
    assert "certificate has expired" in refused(late.front(), late.client)


def test_a_client_that_is_wrong_about_tls_gets_an_error(world: World) -> None:
    assert "it speaks TLS, and this process does not" in refused(world.front(), None)
    assert "it does not speak TLS, and this process does" in refused(None, world.client)


def test_a_port_of_the_cluster_is_distinguished_from_one_of_a_proxy(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "is that the port of a proxy?" in refused(world.server.server_credentials(), world.client)
    assert "PEER_DID_NOT_RETURN_A_CERTIFICATE" in capfd.readouterr().err


def test_a_file_that_holds_no_ca_is_named(world: World, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match=r"the CA file .*absent.pem cannot be read"):
        ClientSecurity(tmp_path / "absent.pem").check()
    (tmp_path / "ca.pem").write_text("not PEM")
    with pytest.raises(InvalidParameter, match=r"the CA file .*ca.pem holds no certificate"):
        ClientSecurity(tmp_path / "ca.pem").check()
    with pytest.raises(InvalidParameter, match="holds no certificate"):
        ClientSecurity(world.server.key).check()
