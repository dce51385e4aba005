"""The proxy's copy of users, roles and privileges.

It is read when it is first needed, and dropped when the root coordinator says so. The root coordinator does
not wait for a proxy whose session has ended. So the copy counts only while the proxy's own lease is certain
to hold: at that moment no change can have returned without this proxy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from elanus.api.access import AccessApi
from elanus.core.access import AccessPolicy
from elanus.core.lease import Lease

Call = Callable[[Awaitable[AccessPolicy]], AccessPolicy]
"""Awaits something on the event loop, from another thread."""


class PolicyCache:
    """``call``: as `elanus.proxy.role.proxy.Proxy.call`."""

    def __init__(self, rootcoord: AccessApi, lease: Lease, call: Call) -> None:
        self._rootcoord = rootcoord
        self._lease = lease
        self._call = call
        self._policy: AccessPolicy | None = None
        self._invalidations = 0

    def current(self) -> AccessPolicy:
        """Return the policy that is in force now, from another thread. Raises `ElanusError` if unreadable."""
        policy = self._policy
        if policy is not None and self._lease.is_valid():
            return policy
        return self._call(self.read())

    async def read(self) -> AccessPolicy:
        """The same on the event loop. Raises `LeaseLost`, and what the root coordinator raises.

        A policy that was read while an invalidation arrived is returned but not kept.
        """
        await self._lease.confirm()
        if self._policy is not None:
            return self._policy
        before = self._invalidations
        policy = await self._rootcoord.access_policy()
        if before == self._invalidations:
            self._policy = policy
        return policy

    def invalidate(self) -> None:
        """Forget the policy. Must run on the event loop."""
        self._invalidations += 1
        self._policy = None
