"""Sessions: how a node announces that it is alive, and checks whether the others still count it as alive.

A node registers under its role's prefix, under a lease, with an id that was never used before and the
address where it is reached. It renews the lease in the background. When the node dies, the key is removed,
and everyone who watches the prefix sees it.

Other nodes act on that: they exclude a proxy whose session has ended from the time ticks, and a standby
replaces a coordinator. So a node must not act on a session that may have ended: before it acknowledges
anything, it calls `Session.confirm`. That costs nothing while the last renewal is recent. Otherwise `confirm`
waits for a renewal, which shows either that the lease never ended, or that it did, and then the session is
*lost*. A lost session is never revived: the node fences itself, and joins again under a new id. The process
need not end for that.

The lease of a node whose event loop may be busy is renewed by a thread (`elanus.meta.keeper`). The session
then shows that thread that the loop is alive, and renews the lease itself only if the thread has let it run
out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec
import structlog

from elanus.core.errors import ElanusError, LeaseLost
from elanus.core.faults import MetaFault
from elanus.core.ids import NodeID
from elanus.core.lease import HeldLease, Pulse
from elanus.meta.keeper import RETRY_S, LeaseKeeper
from elanus.meta.port import (
    Compare,
    CompareFailed,
    LeaseExpired,
    LeaseID,
    MetaStore,
    Put,
    StoreClosed,
)
from elanus.meta.tasks import cancel_and_wait

PREFIX = "session/"
_ID_KEY = PREFIX + "id"
_CONFIRM_ATTEMPTS = 3
"""How often `confirm` checks whether a renewal has shown the session valid: one that is already in flight
may have been sent too long ago to show it."""
_log = structlog.get_logger("session")


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """The record of a session about its node. ``address``: the address of its role. ``labels``: what its
    operator says about it."""

    node_id: NodeID
    role: str
    address: str
    labels: Mapping[str, str] = field(default_factory=dict)


def prefix_of(role: str) -> str:
    """Return the prefix of the keys of all sessions of a role."""
    return f"{PREFIX}{role}-"


def exclusive_key(role: str) -> str:
    """Return the key of the session of an exclusive role, which has one session at a time."""
    return f"{PREFIX}{role}"


class Session:
    """A registration that is kept alive from `register` to `close`.

    ``monotonic_s`` must not stop while the machine sleeps.
    """

    def __init__(
        self,
        meta: MetaStore,
        info: SessionInfo,
        fence: Compare,
        lease: LeaseID,
        held: HeldLease,
        monotonic_s: Callable[[], float],
        keeper: LeaseKeeper | None,
    ) -> None:
        self.info = info
        self.fence = fence
        """The comparison for its transactions: it holds as long as this session is in place."""
        self.lost = asyncio.Event()
        """Set once, when the session has ended without being closed."""
        self._is_closed = False
        self._meta = meta
        self._lease = lease
        self._held = held
        self._monotonic_s = monotonic_s
        self._renewal: asyncio.Task[None] | None = None
        self._pulse = Pulse(held.ttl_s, monotonic_s())
        self._kept = keeper.keep(lease, held, self._pulse) if keeper is not None else None
        self._keeping = asyncio.create_task(self._keep(), name=f"session of {info.role}")

    @classmethod
    async def register(
        cls,
        meta: MetaStore,
        role: str,
        address: str,
        *,
        ttl_s: int,
        monotonic_s: Callable[[], float],
        exclusive: bool = False,
        keeper: LeaseKeeper | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Session:
        """Take an id, and register under the role's prefix, or as the role's only session (``exclusive``).

        A lease that expires before it is used, because the process or the store was suspended, is replaced.
        ``keeper``: renews the lease from a thread. Raises `CompareFailed` when the exclusive key is taken,
        and `Unavailable`.
        """
        info = SessionInfo(await _next_id(meta), role, address, labels or {})
        key = exclusive_key(role) if exclusive else f"{prefix_of(role)}{info.node_id}"
        while True:
            held = HeldLease(ttl_s, monotonic_s())
            lease = await meta.grant_lease(ttl_s)
            try:
                revision = await meta.txn([Put(key, msgspec.json.encode(info), lease)], [Compare(key, 0)])
            except LeaseExpired as error:
                _log.info("lease expired during registration; registering again", role=role, error=str(error))
                continue
            except BaseException:
                with contextlib.suppress(ElanusError):
                    await meta.revoke_lease(lease)
                raise
            return cls(meta, info, Compare(key, revision), lease, held, monotonic_s, keeper)

    @property
    def node_id(self) -> NodeID:
        return self.info.node_id

    @property
    def lease(self) -> LeaseID:
        return self._lease

    def is_valid(self) -> bool:
        """Whether no other node can have seen this session as ended by now."""
        return not self.lost.is_set() and self._held.is_valid(self._monotonic_s())

    async def confirm(self) -> None:
        """Return if the session has not ended up to now. Raises `LeaseLost` when it has, or may have."""
        for _ in range(_CONFIRM_ATTEMPTS):
            if self.is_valid():
                return
            if self.lost.is_set():
                raise LeaseLost(f"the session of {self._name} is over; retry when it has joined again")
            try:
                await asyncio.shield(self._renew())
            except ElanusError as error:
                raise LeaseLost(f"the session of {self._name} cannot be confirmed: {error}; retry") from error
        raise LeaseLost(f"the session of {self._name} was not confirmed in time; retry")

    async def confirm_in_store(self) -> None:
        """As `confirm`, but always ask the store, whose answer needs no clock.

        A lease that was revoked by hand ends early, and the clock of a machine that was suspended may have
        stood still. Raises `LeaseLost` when the session has ended, and `Unavailable`.
        """
        found = await self._meta.get(self.fence.key)
        if found is None or found.revision != self.fence.revision:
            self.give_up("its record is gone")
            raise LeaseLost(f"the session of {self._name} is over; retry when it has joined again")

    @property
    def has_ended(self) -> bool:
        """Whether it was closed or lost."""
        return self._is_closed or self.lost.is_set()

    def give_up(self, why: str) -> None:
        """Mark the session as lost, and set `lost`. Does nothing once it is closed."""
        if not self.has_ended:
            _log.warning("session lost", role=self.info.role, node_id=self.node_id, why=why)
            self.lost.set()

    async def close(self) -> None:
        """End the session cleanly: others see it at once. Closing a lost session only stops its tasks.

        If the store cannot be written, as on a full disk, the lease expires later, and the process stops.
        """
        self._is_closed = True
        if self._kept is not None:
            self._kept.cancel()
        await cancel_and_wait(self._keeping, self._renewal)
        try:
            await self._meta.revoke_lease(self._lease)
        except (ElanusError, MetaFault) as error:
            _log.info("session not revoked; its lease will expire", role=self.info.role, error=str(error))

    @property
    def _name(self) -> str:
        return f"{self.info.role} {self.node_id}"

    async def _keep(self) -> None:
        pause_s = self._held.renew_every_s
        while not self.lost.is_set():
            await asyncio.sleep(pause_s)
            self._pulse.beat(self._monotonic_s())
            if self._kept is not None and self.is_valid():
                pause_s = self._held.renew_every_s
                continue
            try:
                await asyncio.shield(self._renew())
                pause_s = self._held.renew_every_s
            except ElanusError as error:  # also a refusal, which may pass: nobody else renews it
                _log.warning("session not renewed", role=self.info.role, error=error.message)
                pause_s = RETRY_S
            except StoreClosed:
                return

    def _renew(self) -> asyncio.Task[None]:
        """Return the renewal in flight, or a new one: one at a time, shared by all callers."""
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.ensure_future(self._renewed())
            self._renewal.add_done_callback(_seen)
        return self._renewal

    async def _renewed(self) -> None:
        sent_s = self._monotonic_s()
        try:
            await self._meta.renew_lease(self._lease)
        except LeaseExpired as error:
            self.give_up(str(error))
        else:
            self._held.renewed(sent_s)


def _seen(renewal: asyncio.Task[None]) -> None:
    if not renewal.cancelled():
        renewal.exception()


async def _next_id(meta: MetaStore) -> NodeID:
    while True:
        found = await meta.get(_ID_KEY)
        last, revision = (int(found.value), found.revision) if found is not None else (0, 0)
        try:
            await meta.txn([Put(_ID_KEY, str(last + 1).encode())], [Compare(_ID_KEY, revision)])
        except CompareFailed:
            continue
        return NodeID(last + 1)
