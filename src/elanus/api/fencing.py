"""Fencing: nodes refuse the orders of a coordinator that has been replaced.

A coordinator that was paused past its lease (a stopped process, a suspended machine) wakes up in the
middle of what it was about to do. Its metadata is fenced by its lease (`elanus.meta.election`), but its
*orders* to nodes bypass the metadata. So its clients send the session it acts under. Session ids are
never reused and grow with time: of two sessions of a role, the one elected later has the larger id. A
server remembers the largest id it has received for each role, and from then on refuses orders that carry a
smaller one or none.

Orders to nodes are fenced. Requests of coordinators to proxies are not: proxies forget cache entries or
allocations, which they fetch again, and report their state. Calls between coordinators change nothing
but metadata, which is fenced; those that write what the caller knows (a schema) compare it with what the
active caller has. A version that querycoord writes to a query channel is fenced by its number
(`elanus.querycoord.fleet`).

A coordinator that has been replaced may still receive requests from clients that do not know its successor.
Where the answer is kept, promises something, or decides what is deleted (allocations, definitions, ids, which
index files are in use), the coordinator computes the answer first and then checks its lease (`while_active`),
so no other coordinator can have invalidated it by then. Other answers (states, progress, what is to be
loaded) are requested again and again, and a stale one lasts only until the next.

An accepted order is carried out to its end, even if another coordinator is elected meanwhile. A server that
has just started knows no coordinator yet; orders to data nodes also carry the epoch of their registration,
which closes that gap there.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import structlog

from elanus.core.errors import CoordinatorReplaced, ElanusError
from elanus.core.ids import NodeID
from elanus.core.lease import Lease

_log = structlog.get_logger("rpc")
Method = TypeVar("Method", bound=Callable[..., Awaitable[Any]])
ISSUER_KEY = "elanus-issued-by"
"""The session of a call's issuer, in the call's metadata."""
_MARK = "__order_of__"


def order_of(role: str) -> Callable[[Method], Method]:
    """Mark a method of an interface as an order that only the active coordinator of ``role`` may give."""

    def mark(method: Method) -> Method:
        setattr(method, _MARK, role)
        return method

    return mark


def orders_of(api: type[Any]) -> dict[str, str]:
    """Return the orders among the methods of an interface, each with the role that gives it."""
    methods = inspect.getmembers(api, inspect.iscoroutinefunction)
    return {name: getattr(method, _MARK) for name, method in methods if hasattr(method, _MARK)}


@asynccontextmanager
async def while_active(lease: Lease) -> AsyncIterator[None]:
    """Let the result of the block out, errors included, only if the coordinator is still active afterwards.

    Otherwise raises `LeaseLost` instead. Costs nothing if the lease was renewed recently.
    """
    try:
        yield
    except ElanusError:
        await lease.confirm()
        raise
    await lease.confirm()


class Gate:
    """The knowledge of one server about the coordinators."""

    def __init__(self) -> None:
        self._latest: dict[str, NodeID] = {}

    def note(self, role: str, issued_by: NodeID | None) -> None:
        """Note a call of the role's coordinator, of any kind."""
        if issued_by is not None and issued_by > self._latest.get(role, 0):
            self._latest[role] = issued_by

    def admit(self, role: str, issued_by: NodeID | None) -> None:
        """Raises `CoordinatorReplaced` for an order that was not given by the latest known coordinator."""
        latest = self._latest.get(role)
        if latest is None or (issued_by is not None and issued_by >= latest):
            return
        if issued_by is None:
            raise CoordinatorReplaced(
                f"an order without the session that gives it: {role} {latest} is known here"
            )
        raise CoordinatorReplaced(f"an order of {role} {issued_by}: {role} {latest} has taken its place")


class Orders:
    """The orders among the methods of one interface of a server, which its ``gate`` admits or refuses."""

    def __init__(self, api: type[Any], gate: Gate) -> None:
        self._orders = orders_of(api)
        self._issuer = next(iter(self._orders.values()), "")
        self._gate = gate

    def admit(self, method: str, issued_by: NodeID | None) -> None:
        """Note a call. Raises `CoordinatorReplaced` for an order as `Gate.admit` does."""
        if not self._issuer:
            return
        self._gate.note(self._issuer, issued_by)
        if method in self._orders:
            try:
                self._gate.admit(self._issuer, issued_by)
            except CoordinatorReplaced as error:
                _log.warning("order refused", method=method, reason=error.message)
                raise
