"""A call to a node is meant for one session: a later node at the address, or the same again, refuses it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable

import pytest

from elanus.api.proxy import ProxyApi
from elanus.core.errors import Unavailable
from elanus.core.ids import CollectionID, NodeID
from elanus.core.timestamps import Timestamp
from elanus.rpc.carrier import RpcChannel, RpcServer
from elanus.rpc.local import LocalRole, local_client
from elanus.rpc.remote import Peer

FORMER, LATTER = NodeID(5), NodeID(9)


class Proxy:
    def __init__(self, answer: int) -> None:
        self._answer = Timestamp(answer)

    async def return_allocations(self, collection_id: CollectionID) -> Timestamp:
        return self._answer


def run_with(work: Callable[[LocalRole, RpcChannel], Awaitable[None]]) -> None:
    """``work`` gets a role, and a connection to the process that serves it."""

    async def serve() -> None:
        role = LocalRole("proxy")
        with tempfile.TemporaryDirectory() as directory:
            address = f"unix:{directory}/rpc"
            server = RpcServer(address, [(ProxyApi, local_client(role, ProxyApi))])
            await server.start()
            channel = RpcChannel(address)
            try:
                await work(role, channel)
            finally:
                await channel.close()
                await server.stop()

    asyncio.run(serve())


def asked(channel: RpcChannel, node_id: NodeID | None) -> Awaitable[Timestamp]:
    return Peer("proxy", channel, node_id).client(ProxyApi, 5.0).return_allocations(CollectionID(1))


def test_a_call_reaches_the_session_it_is_meant_for_and_no_later_one() -> None:
    async def work(role: LocalRole, channel: RpcChannel) -> None:
        role.up(Proxy(50), FORMER)
        assert await asked(channel, FORMER) == 50
        role.down()
        role.up(Proxy(90), LATTER)
        with pytest.raises(Unavailable, match="proxy 5 is gone: 9 has replaced it"):
            await asked(channel, FORMER)
        assert await asked(channel, LATTER) == 90

    run_with(work)


def test_a_call_that_waited_for_a_role_to_be_up_is_not_taken_by_the_next_session() -> None:
    async def work(role: LocalRole, channel: RpcChannel) -> None:
        call = asyncio.ensure_future(asked(channel, FORMER))
        await channel.ready(5.0)
        await asyncio.sleep(0.1)
        role.up(Proxy(90), LATTER)
        with pytest.raises(Unavailable, match="5 is gone"):
            await call

    run_with(work)


def test_any_session_answers_a_call_that_names_none() -> None:
    async def work(role: LocalRole, channel: RpcChannel) -> None:
        role.up(Proxy(90), LATTER)
        assert await asked(channel, None) == 90
        role.down()
        role.up(Proxy(70))
        assert await asked(channel, FORMER) == 70, "it has no session"

    run_with(work)
