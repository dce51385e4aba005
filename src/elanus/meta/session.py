"""Sessions (seed 3, 6.0): how a node tells that it is there, and knows whether it still counts.

A node registers under its role's prefix, with an id that was never given before and the address where it is
reached, under a lease. It renews the lease in the background. When the node dies, the key goes, and
everybody who watches the prefix learns of it.

Others act on that: they leave a proxy whose session is gone out of the time ticks, they give a
coordinator's place to the next. So the node must not act as if it were still in place: before it makes
good on anything, it asks `Session.confirm`. That costs nothing while the last renewal is recent. Is it
not, a renewal is waited for; it either shows that the lease never ended, or that it did, and then the
session is *lost*. A lost session never comes back: the node fences itself, and joins again under a new id.
The process need not end for that.

The lease of a node whose loop may be kept busy is renewed by a thread (`elanus.meta.keeper`). The session
then shows that thread that the loop is alive, and renews by itself only what the thread has let run out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import structlog

from elanus.core.errors import LeaseLost, Unavailable
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

PREFIX = "session/"
_ID_KEY = PREFIX + "id"
_CONFIRM_ATTEMPTS = 3
"""How often a holder looks whether a renewal has shown its session valid: one that is under way may have
been sent too long ago to show it."""
_log = structlog.get_logger("session")


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """What a session says of its node. ``address``: where its role is reached."""

    node_id: NodeID
    role: str
    address: str


def prefix_of(role: str) -> str:
    """What the keys of all sessions of a role begin with."""
    return f"{PREFIX}{role}-"


def exclusive_key(role: str) -> str:
    """The key of the one session that a role has at a time."""
    return f"{PREFIX}{role}"


class Session:
    """A registration that is kept alive from `register` to `close`.

    ``monotonic_s`` must not stand still while the machine sleeps.
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
        """Holds as long as this session is in place: what its transactions compare."""
        self.lost = asyncio.Event()
        """Set once, when the session has ended without being closed."""
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
    ) -> Session:
        """Take an id and a place under the role's prefix, or the role's only one.

        A lease that is over before it is used, because the process or the store stood still, is replaced.
        ``keeper``: renews the lease from a thread. Raises `CompareFailed` when the place is taken, and
        `Unavailable`.
        """
        info = SessionInfo(await _next_id(meta), role, address)
        key = exclusive_key(role) if exclusive else f"{prefix_of(role)}{info.node_id}"
        while True:
            held = HeldLease(ttl_s, monotonic_s())
            lease = await meta.grant_lease(ttl_s)
            try:
                revision = await meta.txn([Put(key, msgspec.json.encode(info), lease)], [Compare(key, 0)])
            except LeaseExpired as error:
                _log.info("registering anew", role=role, error=str(error))
                continue
            except BaseException:
                with contextlib.suppress(Unavailable):
                    await meta.revoke_lease(lease)
                raise
            return cls(meta, info, Compare(key, revision), lease, held, monotonic_s, keeper)

    @property
    def node_id(self) -> NodeID:
        return self.info.node_id

    def is_valid(self) -> bool:
        """Whether nobody can have taken this session for ended by now."""
        return not self.lost.is_set() and self._held.is_valid(self._monotonic_s())

    async def confirm(self) -> None:
        """Returns when the session has not ended up to now. Raises `LeaseLost` when it has, or may have."""
        for _ in range(_CONFIRM_ATTEMPTS):
            if self.is_valid():
                return
            if self.lost.is_set():
                raise LeaseLost(f"the session of {self._name} is over; retry when it has joined again")
            try:
                await asyncio.shield(self._renew())
            except Unavailable as error:
                raise LeaseLost(f"whether {self._name} still counts is not known: {error}; retry") from error
        raise LeaseLost(f"whether {self._name} still counts was not answered in time; retry")

    def give_up(self, why: str) -> None:
        """The session no longer counts. Who waits for `lost` learns of it."""
        if not self.lost.is_set():
            _log.warning("session lost", role=self.info.role, node_id=self.node_id, why=why)
            self.lost.set()

    async def close(self) -> None:
        """End it in an orderly way: others learn of it at once. Closing a lost one only stops its work."""
        if self._kept is not None:
            self._kept.cancel()
        work = [self._keeping, *([self._renewal] if self._renewal is not None else [])]
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        try:
            await self._meta.revoke_lease(self._lease)
        except (Unavailable, StoreClosed) as error:
            _log.info("session left to its end", role=self.info.role, error=str(error))

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
            except Unavailable as error:
                _log.warning("session not renewed", role=self.info.role, error=error.message)
                pause_s = RETRY_S
            except StoreClosed:
                return

    def _renew(self) -> asyncio.Task[None]:
        """One renewal at a time, shared by all who want to know."""
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
