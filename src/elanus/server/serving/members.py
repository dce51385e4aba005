"""The serving processes that run now, as the coordinators of the main process see them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import structlog

from elanus.api.proxy import ProxyApi
from elanus.api.querynode import QueryNodeApi
from elanus.api.serving import MirrorNode, ReadGrants
from elanus.core.errors import CoordinatorReplaced, ElanusError
from elanus.core.ids import CollectionID, NodeID
from elanus.core.nodes import Nodes, NodesAs
from elanus.rpc.carrier import RpcChannel

Api = TypeVar("Api")
NOTICE_S = 3.0
"""How long a serving process may take to forget what it has cached, or to give up a grant."""
_log = structlog.get_logger("serving")


class Ending(Protocol):
    """The end of a process."""

    @property
    def ended(self) -> asyncio.Future[int]:
        """Done when it has ended."""

    async def kill(self) -> None:
        """Return when it has ended."""


class Member:
    """A serving process that answers. ``channel``: the connection to it."""

    def __init__(self, process: Ending, channel: RpcChannel) -> None:
        self.process = process
        self.channel = channel
        self.proxy = channel.client(ProxyApi, NOTICE_S)

    def mirror(self, querycoord: NodeID) -> MirrorNode:
        """Return the node, as the query coordinator with that session commands it."""
        grants = self.channel.client(ReadGrants, NOTICE_S, issued_by=querycoord)
        node = self.channel.client(QueryNodeApi, None, issued_by=querycoord)
        return MirrorNode(node, SureGrants(grants, self.process))


class SureGrants:
    """Implements `elanus.api.serving.ReadGrants`: `withhold` returns when the grant is gone, or the process.

    Raises `CoordinatorReplaced` for a coordinator that may not decide any more.
    """

    def __init__(self, grants: ReadGrants, process: Ending) -> None:
        self._grants = grants
        self._process = process

    async def grant(self, collection_id: CollectionID) -> None:
        await self._grants.grant(collection_id)

    async def withhold(self, collection_id: CollectionID) -> None:
        ended = self._process.ended
        asked = asyncio.ensure_future(self._grants.withhold(collection_id))
        try:
            await asyncio.wait((asked, ended), return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                asked.result()
        except CoordinatorReplaced:
            raise
        except ElanusError as error:
            _log.warning("serving process killed: it does not answer", error=error.message)
            await self._process.kill()
        finally:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)


class Members(Nodes[Member]):
    """Used on one event loop."""

    def __init__(self) -> None:
        self._members: dict[NodeID, Member] = {}
        self._listeners: list[Callable[[], None]] = []

    def join(self, node_id: NodeID, member: Member) -> None:
        self._members[node_id] = member
        self._changed()

    def leave(self, node_id: NodeID) -> None:
        """Call this only after the end of the process."""
        del self._members[node_id]
        self._changed()

    def __getitem__(self, node_id: NodeID) -> Member:
        return self._members[node_id]

    def __iter__(self) -> Iterator[NodeID]:
        return iter(tuple(self._members))

    def __len__(self) -> int:
        return len(self._members)

    async def refresh(self) -> None:
        """Do nothing: it is always up to date."""

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _changed(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    def proxies(self) -> Nodes[ProxyApi]:
        return NodesAs(self, lambda node_id: self[node_id].proxy)

    def mirrors(self, querycoord: NodeID) -> Nodes[MirrorNode]:
        return NodesAs(self, lambda node_id: self[node_id].mirror(querycoord))


class Both(Nodes[Api]):
    """The nodes of both. No id is in both."""

    def __init__(self, first: Nodes[Api], second: Nodes[Api]) -> None:
        self._first = first
        self._second = second

    def __getitem__(self, node_id: NodeID) -> Api:
        return self._first[node_id] if node_id in self._first else self._second[node_id]

    def __iter__(self) -> Iterator[NodeID]:
        yield from self._first
        yield from self._second

    def __len__(self) -> int:
        return len(self._first) + len(self._second)

    async def refresh(self) -> None:
        await self._first.refresh()
        await self._second.refresh()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        ends = (self._first.on_change(listener), self._second.on_change(listener))

        def end() -> None:
            for one in ends:
                one()

        return end
