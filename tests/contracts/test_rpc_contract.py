"""The contract of every carrier of calls: in the process, on a socket, over TCP, over mutual TLS."""

from __future__ import annotations

import asyncio
import functools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import trustme
from rpc_carriers import Serve, in_process, over_socket, over_tcp, security_of

from elanus.core.errors import CollectionNotFound, DeadlineExceeded, ElanusError, Unavailable
from elanus.rpc import carrier
from elanus.rpc.carrier import RpcChannel, RpcServer
from elanus.rpc.tracing import end_trace, set_trace, trace_id

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class EchoApi(Protocol):
    async def echo(self, data: bytes, count: int) -> bytes: ...
    async def size(self, data: bytes) -> int: ...
    async def refuse(self, text: str) -> None: ...
    async def trace(self) -> str: ...
    async def wait(self) -> None: ...


class Echo:
    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def echo(self, data: bytes, count: int) -> bytes:
        return data * count

    async def size(self, data: bytes) -> int:
        return len(data)

    async def refuse(self, text: str) -> None:
        raise CollectionNotFound(text)

    async def trace(self) -> str:
        return trace_id()

    async def wait(self) -> None:
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


@pytest.fixture(params=["in-process", "socket", "tcp", "tls"])
def serve(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Serve]:
    if request.param == "in-process":
        yield in_process
    elif request.param == "socket":
        with tempfile.TemporaryDirectory(prefix="rpc") as directory:  # a socket's path must be short
            yield functools.partial(over_socket, Path(directory) / "s")
    elif request.param == "tcp":
        yield over_tcp
    else:
        ca = trustme.CA()
        member = security_of(tmp_path, ca.issue_cert("127.0.0.1"), ca)
        yield functools.partial(over_tcp, served=member, called=member)


def with_client(serve: Serve, work: Callable[[Any, Echo], Any]) -> Any:
    async def run() -> Any:
        echo = Echo()
        async with serve(EchoApi, echo) as client:
            return await work(client, echo)

    return asyncio.run(run())


def test_arguments_go_there_and_the_result_comes_back(serve: Serve) -> None:
    assert with_client(serve, lambda client, _: client.echo(b"ab", 3)) == b"ababab"


def test_errors_keep_their_type_and_text(serve: Serve) -> None:
    async def work(client: EchoApi, _echo: Echo) -> ElanusError:
        with pytest.raises(ElanusError) as caught:
            await client.refuse("no such thing")
        return caught.value

    error = with_client(serve, work)
    assert type(error) is CollectionNotFound
    assert error.message == "no such thing"


def test_calls_do_not_wait_for_each_other(serve: Serve) -> None:
    async def work(client: EchoApi, echo: Echo) -> None:
        waiting = asyncio.ensure_future(client.wait())
        await echo.waiting.wait()
        assert await client.echo(b"x", 1) == b"x"
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    with_client(serve, work)


def test_a_call_that_is_given_up_is_given_up_at_the_other_end(serve: Serve) -> None:
    async def work(client: EchoApi, echo: Echo) -> None:
        waiting = asyncio.ensure_future(client.wait())
        await echo.waiting.wait()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        async with asyncio.timeout(10):
            await echo.cancelled.wait()

    with_client(serve, work)


def test_the_trace_goes_along(serve: Serve) -> None:
    async def work(client: EchoApi, _echo: Echo) -> tuple[str, str, str]:
        before = await client.trace()
        token = set_trace(TRACE)
        try:
            during = await client.trace()
        finally:
            end_trace(token)
        return before, during, await client.trace()

    assert with_client(serve, work) == ("", TRACE, "")


@pytest.mark.parametrize("secured", [False, True], ids=["tcp", "tls"])
def test_a_peer_that_is_not_there_yet_is_waited_for(secured: bool, tmp_path: Path) -> None:
    async def run() -> bytes:
        ca = trustme.CA()
        security = security_of(tmp_path, ca.issue_cert("127.0.0.1"), ca) if secured else None
        gone = RpcServer("127.0.0.1:0", [(EchoApi, Echo())], security=security)
        await gone.start()
        await gone.stop(0)
        address = f"127.0.0.1:{gone.port}"
        channel = RpcChannel(address, security=security)
        with pytest.raises(DeadlineExceeded):
            await channel.ready(0.2)
        call = asyncio.ensure_future(channel.client(EchoApi).echo(b"x", 2))
        server = RpcServer(address, [(EchoApi, Echo())], security=security)
        await server.start()
        try:
            return await call
        finally:
            await channel.close()
            await server.stop(0)

    assert asyncio.run(run()) == b"xx"


def test_a_large_message_passes() -> None:
    """Messages of 256 MB are promised."""
    data = bytes(200 * 1024 * 1024)

    async def run() -> int:
        async with over_tcp(EchoApi, Echo(), timeout_s=None) as client:
            return int(await client.size(data))

    assert asyncio.run(run()) == len(data)


def test_one_that_is_larger_than_allowed_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(key, 1 << 20 if key.endswith("message_length") else value) for key, value in carrier._OPTIONS]
    monkeypatch.setattr(carrier, "_SERVER_OPTIONS", limits)

    async def run() -> None:
        async with over_tcp(EchoApi, Echo()) as client:
            with pytest.raises(ElanusError, match="a message of echo is too large for echo"):
                await client.echo(bytes(2 << 20), 1)

    asyncio.run(run())


def test_a_second_server_on_a_port_is_refused() -> None:
    async def run() -> None:
        server = RpcServer("127.0.0.1:0", [(EchoApi, Echo())])
        await server.start()
        try:
            with pytest.raises(Unavailable, match=f"cannot listen on 127.0.0.1:{server.port}"):
                RpcServer(f"127.0.0.1:{server.port}", [(EchoApi, Echo())])
        finally:
            await server.stop(0)

    asyncio.run(run())
