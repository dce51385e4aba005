"""Orders of a coordinator that has been replaced are refused by whoever receives them.

A coordinator that was paused past its lease (a stopped process, a suspended machine) wakes up in the
middle of what it was about to do. Its metadata is fenced by its lease (`elanus.meta.election`); what it
*orders* from nodes goes past the metadata. So its clients name the session it acts under. Session ids are
never given twice and grow with time: of two sessions of a role, the one elected later has the larger id. A
server remembers the largest it has heard of each role, and refuses orders that come with a smaller one, or
with none any more.

Fenced are the orders to nodes. Not fenced is what coordinators ask of proxies: to forget a cache entry or
quota that is fetched anew, and to tell where they stand. What coordinators ask of one another changes nothing
but metadata, which is fenced. What querycoord writes to a query channel is fenced by its number
(`elanus.querycoord.fleet`).

A coordinator that has been replaced may still be asked, by whoever has not heard of its successor. Where the
answer is kept, promises something, or decides what is deleted (quota, definitions, ids, which index files are
in use), it is found out first, and then the lease is looked at (`while_active`): so nobody else can have made
it wrong by then. Other answers (states, progress, what is to be loaded) are asked for again and again, and a
stale one lasts until the next.

An order that was accepted is carried out to its end, whoever is elected meanwhile. A server that has just
started has heard of nobody; orders to data nodes also carry the epoch of their registration, which closes
that gap there.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from elanus.core.errors import CoordinatorReplaced, ElanusError
from elanus.core.ids import NodeID
from elanus.core.lease import Lease

Method = TypeVar("Method", bound=Callable[..., Awaitable[Any]])
ISSUER_KEY = "elanus-issued-by"
"""The session of a call's issuer, in the call's metadata."""
_MARK = "__order_of__"


def order_of(role: str) -> Callable[[Method], Method]:
    """Marks a method of an interface as an order that only the active coordinator of ``role`` may give."""

    def mark(method: Method) -> Method:
        setattr(method, _MARK, role)
        return method

    return mark


def orders_of(api: type[Any]) -> dict[str, str]:
    """The orders among the methods of an interface, each with the role that gives it."""
    methods = inspect.getmembers(api, inspect.iscoroutinefunction)
    return {name: getattr(method, _MARK) for name, method in methods if hasattr(method, _MARK)}


@asynccontextmanager
async def while_active(lease: Lease) -> AsyncIterator[None]:
    """What the block finds out, a refusal too, is told only by a coordinator that is the active one after it.

    Raises `LeaseLost` in its place. Costs nothing while the lease has been renewed lately.
    """
    try:
        yield
    except ElanusError:
        await lease.confirm()
        raise
    await lease.confirm()


class Gate:
    """What one server has heard of the coordinators."""

    def __init__(self) -> None:
        self._latest: dict[str, NodeID] = {}

    def hear(self, role: str, issued_by: NodeID | None) -> None:
        """A call of the role's coordinator, of whatever kind."""
        if issued_by is not None and issued_by > self._latest.get(role, 0):
            self._latest[role] = issued_by

    def admit(self, role: str, issued_by: NodeID | None) -> None:
        """Raises `CoordinatorReplaced` for an order that the latest coordinator heard of did not give."""
        latest = self._latest.get(role)
        if latest is None or (issued_by is not None and issued_by >= latest):
            return
        if issued_by is None:
            raise CoordinatorReplaced(
                f"an order without the session that gives it: {role} {latest} has been heard of here"
            )
        raise CoordinatorReplaced(f"an order of {role} {issued_by}: {role} {latest} has taken its place")
