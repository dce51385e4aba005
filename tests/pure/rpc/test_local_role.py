"""A handle to a role that may be restarted alone: its peers notice a pause, and never two instances."""

from __future__ import annotations

import asyncio

import pytest

from elanus.api.proxy import ProxyApi
from elanus.core.errors import CollectionNotFound, Unavailable
from elanus.core.ids import CollectionID
from elanus.core.timestamps import Timestamp
from elanus.rpc.local import RESTART_WAIT_S, LocalRole, local_client


class Role:
    """Answers when the test says so; remembers what it did."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.done: list[int] = []

    async def return_allocations(self, collection_id: CollectionID) -> Timestamp:
        await self.go_on.wait()
        self.done.append(collection_id)
        return Timestamp(collection_id * 10)

    async def invalidate_collection(self, collection_id: CollectionID) -> None:
        raise CollectionNotFound(f"no {collection_id}")


def now_s() -> float:
    return asyncio.get_running_loop().time()


def client_of(handle: LocalRole) -> ProxyApi:
    return local_client(handle, ProxyApi)


async def test_a_call_reaches_the_instance_and_brings_back_what_it_says() -> None:
    handle, role = LocalRole("proxy"), Role()
    handle.up(role)
    role.go_on.set()
    assert await client_of(handle).return_allocations(CollectionID(4)) == 40
    with pytest.raises(CollectionNotFound, match="no 4"):
        await client_of(handle).invalidate_collection(CollectionID(4))


async def test_a_call_to_a_role_that_is_down_waits_for_its_return() -> None:
    handle, role = LocalRole("proxy"), Role()
    role.go_on.set()
    call = asyncio.ensure_future(client_of(handle).return_allocations(CollectionID(4)))
    await asyncio.sleep(RESTART_WAIT_S - 1)
    handle.up(role)
    assert await call == 40


async def test_a_role_that_does_not_come_back_is_unavailable() -> None:
    handle = LocalRole("proxy")
    with pytest.raises(Unavailable, match="proxy is not running"):
        await client_of(handle).return_allocations(CollectionID(4))
    assert now_s() == RESTART_WAIT_S


async def test_a_role_that_is_gone_again_at_once_is_waited_for_again() -> None:
    handle, role = LocalRole("proxy"), Role()
    role.go_on.set()
    call = asyncio.ensure_future(client_of(handle).return_allocations(CollectionID(4)))
    await asyncio.sleep(1)
    handle.up(Role())
    handle.down()  # before the waiting call had its turn
    await asyncio.sleep(1)
    handle.up(role)
    assert await call == 40


async def test_calls_that_run_when_a_role_goes_down_end_there() -> None:
    handle, old, new = LocalRole("proxy"), Role(), Role()
    handle.up(old)
    call = asyncio.ensure_future(client_of(handle).return_allocations(CollectionID(4)))
    await asyncio.sleep(0)
    handle.down()
    with pytest.raises(Unavailable, match="went down during return_allocations"):
        await call
    handle.up(new)
    old.go_on.set()
    new.go_on.set()
    assert await client_of(handle).return_allocations(CollectionID(5)) == 50
    assert (old.done, new.done) == ([], [5]), "the old instance did nothing more"


async def test_a_caller_that_is_cancelled_is_cancelled_and_so_is_its_call() -> None:
    handle, role = LocalRole("proxy"), Role()
    handle.up(role)
    call = asyncio.ensure_future(client_of(handle).return_allocations(CollectionID(4)))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    role.go_on.set()
    await asyncio.sleep(1)
    assert role.done == []


async def test_a_clients_private_names_are_no_methods() -> None:
    with pytest.raises(AttributeError):
        _ = client_of(LocalRole("proxy"))._private  # type: ignore[attr-defined]
