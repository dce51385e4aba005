"""Coordinators in other processes: a call finds the active one, and follows a takeover where it may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import pytest
from fakes import settle

from elanus.api.idempotency import repeatable
from elanus.core.errors import ChannelRewound, DeadlineExceeded, NotStarted, Unavailable
from elanus.core.ids import NodeID
from elanus.core.nodes import Nodes
from elanus.rpc.remote import Peer, RemoteRole


class Api(Protocol):
    @repeatable
    async def look(self, what: int) -> str: ...
    async def change(self, what: int) -> str: ...


class Channel:
    """A connection to a process that answers, or (``silent``) does not. ``refused``: why there is none."""

    def __init__(self, name: str, *, silent: bool = False, connects: bool = True, refused: str = "") -> None:
        self.name = name
        self.silent = silent
        self.connects = connects
        self.refused = refused
        self.issuers: list[NodeID | None] = []
        self.asked: list[str] = []
        self.closed = False
        self.failing: list[Exception] = []

    def client(
        self,
        _api: type[Any],
        _timeout_s: float | None,
        *,
        issued_by: NodeID | None,
        meant_for: NodeID | None,
    ) -> Any:
        self.issuers.append(issued_by)
        return self

    async def ready(self, timeout_s: float) -> None:
        if self.refused:
            raise Unavailable(self.refused)
        if not self.connects:
            await asyncio.sleep(timeout_s)
            raise DeadlineExceeded("the peer did not come up in time")

    async def close(self) -> None:
        self.closed = True

    async def look(self, what: int) -> str:
        return await self._answer(f"look {what}")

    async def change(self, what: int) -> str:
        return await self._answer(f"change {what}")

    async def _answer(self, asked: str) -> str:
        self.asked.append(asked)
        if self.silent:
            await asyncio.sleep(1000)
        if self.failing:
            raise self.failing.pop(0)
        return f"{self.name}: {asked}"


class Sessions(Nodes[Peer]):
    def __init__(self) -> None:
        self.peers: dict[NodeID, Peer] = {}
        self.listeners: list[Callable[[], None]] = []

    def begin(self, number: int, channel: Channel) -> Peer:
        self.peers[NodeID(number)] = peer = Peer(channel.name, channel)  # type: ignore[arg-type]
        self._notify()
        return peer

    async def end(self, number: int) -> None:
        peer = self.peers.pop(NodeID(number))
        self._notify()
        await peer.end()

    def _notify(self) -> None:
        for listener in self.listeners:
            listener()

    def __getitem__(self, node_id: NodeID) -> Peer:
        return self.peers[node_id]

    def __iter__(self) -> Any:
        return iter(self.peers)

    def __len__(self) -> int:
        return len(self.peers)

    async def refresh(self) -> None: ...

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)


async def test_a_call_waits_for_somebody_to_be_the_active_one() -> None:
    sessions = Sessions()
    asked = asyncio.ensure_future(RemoteRole("rootcoord", sessions).client(Api).change(1))
    await settle()
    sessions.begin(1, Channel("one"))
    assert await asked == "one: change 1"


async def test_nobody_takes_the_place_in_time() -> None:
    with pytest.raises(Unavailable, match="rootcoord is not running"):
        await RemoteRole("rootcoord", Sessions(), wait_s=5).client(Api).look(1)


async def test_what_may_be_sent_again_goes_to_the_successor() -> None:
    sessions, silent = Sessions(), Channel("one", silent=True)
    sessions.begin(1, silent)
    asked = asyncio.ensure_future(RemoteRole("rootcoord", sessions).client(Api).look(1))
    await settle()
    assert silent.asked == ["look 1"]
    await sessions.end(1)
    sessions.begin(2, Channel("two"))
    assert await asked == "two: look 1"
    assert silent.closed


async def test_what_may_not_be_is_its_callers_to_decide() -> None:
    sessions, successor = Sessions(), Channel("two")
    sessions.begin(1, Channel("one", silent=True))
    asked = asyncio.ensure_future(RemoteRole("rootcoord", sessions).client(Api).change(1))
    await settle()
    await sessions.end(1)
    sessions.begin(2, successor)
    with pytest.raises(Unavailable, match="one went down during change"):
        await asked
    assert successor.asked == []


async def test_what_was_never_sent_is_sent_to_the_successor() -> None:
    sessions, dead = Sessions(), Channel("one", connects=False)
    sessions.begin(1, dead)
    asked = asyncio.ensure_future(RemoteRole("rootcoord", sessions).client(Api).change(1))
    await settle()
    await sessions.end(1)
    sessions.begin(2, Channel("two"))
    assert await asked == "two: change 1"
    assert dead.asked == []


async def test_one_that_is_active_and_cannot_be_reached_is_not_waited_for_endlessly() -> None:
    sessions = Sessions()
    sessions.begin(1, Channel("one", connects=False))
    with pytest.raises(Unavailable, match="rootcoord cannot be reached"):
        await RemoteRole("rootcoord", sessions, wait_s=5).client(Api).look(1)


async def test_one_that_refuses_this_process_is_not_waited_for() -> None:
    sessions = Sessions()
    sessions.begin(1, Channel("one", refused="it does not speak TLS"))
    with pytest.raises(Unavailable, match="it does not speak TLS"):
        await RemoteRole("rootcoord", sessions).client(Api).look(1)


async def test_a_role_that_is_starting_is_asked_again_and_one_that_refuses_a_log_is_not() -> None:
    sessions, channel = Sessions(), Channel("one")
    sessions.begin(1, channel)
    role = RemoteRole("rootcoord", sessions).client(Api)
    channel.failing = [Unavailable("it is starting")]
    assert await role.look(1) == "one: look 1"
    channel.failing = [ChannelRewound("the log is an older copy")]
    with pytest.raises(ChannelRewound, match="an older copy"):
        await role.look(2)
    assert channel.asked == ["look 1", "look 1", "look 2"]


async def test_why_a_role_does_not_start_is_said_though_it_is_gone_again_by_then() -> None:
    sessions, channel = Sessions(), Channel("one")
    sessions.begin(1, channel)
    rootcoord = RemoteRole("rootcoord", sessions, wait_s=5)
    role = rootcoord.client(Api)
    channel.failing = [NotStarted("rootcoord does not start: the metadata is older")]
    asked = asyncio.ensure_future(role.look(1))
    await settle()
    assert rootcoord.refusal == "rootcoord does not start: the metadata is older", "while the call waits"
    await sessions.end(1)
    with pytest.raises(NotStarted, match="does not start: the metadata is older"):
        await asked
    sessions.begin(2, channel)
    assert await role.look(1) == "one: look 1"
    assert rootcoord.refusal == ""


async def test_orders_name_the_session_that_gives_them() -> None:
    sessions, channel = Sessions(), Channel("one")
    peer = sessions.begin(1, channel)
    await peer.client(Api, issued_by=NodeID(7)).change(1)
    await peer.client(Api, issued_by=NodeID(8)).change(1)
    await peer.client(Api).look(1)
    assert channel.issuers == [7, 8, None]


async def test_a_cancelled_caller_is_cancelled() -> None:
    sessions = Sessions()
    sessions.begin(1, Channel("one", silent=True))
    asked = asyncio.ensure_future(RemoteRole("rootcoord", sessions).client(Api).look(1))
    await settle()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked


async def test_a_peer_that_is_gone_is_called_no_more() -> None:
    sessions, channel = Sessions(), Channel("one")
    client = sessions.begin(1, channel).client(Api)
    await sessions.end(1)
    with pytest.raises(Unavailable, match="one is gone"):
        await client.look(1)
    assert channel.asked == []
