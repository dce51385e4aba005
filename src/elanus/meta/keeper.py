"""Leases renewed in a separate thread, over a separate connection.

On an overloaded machine, the event loop of a node that is loading segments is late. If the loop renewed the
lease, the node would be taken for dead, its share would move to other nodes, which then load as well, and so
on. A renewal is so little work that a thread that does nothing else is always in time.

Other nodes may conclude the same as before. The lease of a node that cannot reach the store is not renewed,
and neither is that of a process that is suspended as a whole. If only the event loop has stopped, the lease
is renewed for a few more terms (`Pulse`), then no longer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

import structlog

from elanus.core.errors import ElanusError
from elanus.core.lease import HeldLease, Pulse
from elanus.meta.port import LeaseExpired, LeaseID, MetaStore, StoreClosed
from elanus.meta.tasks import cancel_and_wait

RETRY_S = 0.1
_log = structlog.get_logger("session")


async def keep(
    meta: MetaStore, lease: LeaseID, held: HeldLease, pulse: Pulse, monotonic_s: Callable[[], float]
) -> None:
    """Renew a lease as long as it lasts and its holder's event loop shows that it is alive."""
    pause_s = held.renew_every_s
    while True:
        await asyncio.sleep(pause_s)
        sent_s = monotonic_s()
        if not pulse.is_beating(sent_s):
            _log.warning("session not renewed: event loop unresponsive", lease=lease)
            continue
        try:
            await meta.renew_lease(lease)
        except ElanusError as error:
            _log.warning("session not renewed", error=error.message)
            pause_s = RETRY_S
        except (LeaseExpired, StoreClosed):
            return  # the holder finds out for itself
        else:
            held.renewed(sent_s)
            pause_s = held.renew_every_s


class LeaseKeeper:
    """Runs `keep` for any number of leases, from `start` to `close`.

    ``connect`` opens the store. It is called once, and the store is used only in the thread.
    """

    def __init__(self, connect: Callable[[], MetaStore], monotonic_s: Callable[[], float]) -> None:
        self._connect = connect
        self._monotonic_s = monotonic_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="elanus-leases", daemon=True)
        self._meta: MetaStore | None = None

    def start(self) -> None:
        self._meta = self._connect()
        self._thread.start()

    def keep(self, lease: LeaseID, held: HeldLease, pulse: Pulse) -> Future[None]:
        """Begin renewing; cancel the returned future to stop."""
        assert self._meta is not None, "started before it is used"
        return self._submit(keep(self._meta, lease, held, pulse, self._monotonic_s))

    async def close(self) -> None:
        """Stop renewing."""
        if self._meta is not None:
            await asyncio.wrap_future(self._submit(self._end(self._meta)))
            self._loop.call_soon_threadsafe(self._loop.stop)
            await asyncio.to_thread(self._thread.join)
        self._loop.close()

    @staticmethod
    async def _end(meta: MetaStore) -> None:
        keeping = asyncio.all_tasks() - {asyncio.current_task()}
        await cancel_and_wait(*keeping)
        await meta.close()

    def _submit(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)
