"""The proxy's part in time ticks: reports to the root coordinator, and requests for early ticks.

A report says up to which timestamp all of the proxy's writes are finished (`elanus.core.ticks`). It is sent
at regular intervals, and whenever the root coordinator requests one. Without reports of every proxy no tick
is written, and no read that waits for one ends.

Each report carries the demand of the proxy's clients for rates, and its answer the proxy's shares of them
(`elanus.proxy.role.admission`): so rates need no calls of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import structlog

from elanus.api.rootcoord import RootCoordApi, TickReport
from elanus.core.errors import ChannelRewound, DiskFull, ElanusError, NoSession
from elanus.core.lease import Lease
from elanus.core.ticks import tick_report
from elanus.core.timestamps import Timestamp
from elanus.meta.tasks import cancel_and_wait
from elanus.proxy.role.admission import Admission
from elanus.proxy.role.queues import DmQueue
from elanus.proxy.role.stamps import Stamps

_log = structlog.get_logger("proxy")


class TimeTicker:
    """Belongs to the event loop that it is created on; `request` may be called from any thread.

    ``writes``: the queue whose unfinished writes are reported. ``timeout_s``: the longest that a request for
    an early tick is waited for. ``ticked`` is called when a requested tick has been written.
    """

    def __init__(
        self,
        lease: Lease,
        root: RootCoordApi,
        stamps: Stamps,
        writes: DmQueue,
        admission: Admission,
        *,
        interval_ms: int,
        timeout_s: float,
        ticked: Callable[[], None],
    ) -> None:
        self._lease = lease
        self._root = root
        self._stamps = stamps
        self._writes = writes
        self._admission = admission
        self._interval_s = interval_ms / 1000
        self._timeout_s = timeout_s
        self._ticked = ticked
        self._loop = asyncio.get_running_loop()
        self._reporting: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Task[None]] = set()
        self.log_full = ""
        """Why the log had no room for the latest tick; "" if it had, or is not known."""
        self.rewound: dict[tuple[str, ...], str] = {}
        """By the pchannels of requests: why no tick can be written to one of them."""

    async def start(self) -> None:
        """Send the first report, and have others follow. Raises what the root coordinator raises."""
        await self._send_report()
        self._reporting = asyncio.create_task(self._keep_reporting(), name="proxy ticker")

    async def stop(self) -> None:
        """Send no more reports or requests. Call it when no write is unfinished."""
        await cancel_and_wait(*self._requests, self._reporting)

    def report(self, now: Timestamp) -> TickReport:
        """Return what holds now. ``now``: allocated before this call, perhaps by a successor of the root
        coordinator that this proxy's writes get their timestamps from."""
        self._stamps.reported(now)
        default, channels = tick_report(now, self._writes.oldest())
        return TickReport(self._lease.node_id, default, channels, self._writes.written(now))

    def request(self, pchannels: tuple[str, ...], at_least: Timestamp) -> None:
        """Request an early tick of these pchannels, of ``at_least`` or later. Returns at once."""
        self._loop.call_soon_threadsafe(self._begin_request, pchannels, at_least)

    async def _send_report(self) -> None:
        report = replace(self.report(await self._stamps.fresh()), demand=self._admission.demand())
        self._admission.use_shares(await self._root.update_channel_time_tick(report))

    async def _keep_reporting(self) -> None:
        failing = ""
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self._send_report()
                failing = ""
            except NoSession as error:
                self._lease.give_up(error.message)
            except Exception as error:  # noqa: BLE001 - without reports no tick is written and no read ends
                self._note_full(error)
                if failing != (failing := f"{type(error).__name__}: {error}"):
                    _log.warning("time tick not reported", error=failing)

    def _begin_request(self, pchannels: tuple[str, ...], at_least: Timestamp) -> None:
        task = asyncio.ensure_future(self._request(pchannels, at_least))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def _request(self, pchannels: tuple[str, ...], at_least: Timestamp) -> None:
        """Request an early tick. The reader waits for its service time whether this succeeds or not."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._root.tick_now(pchannels, at_least)
            self.log_full = ""
            self.rewound.pop(pchannels, None)
            self._ticked()
        except (ElanusError, TimeoutError) as error:
            self._note_full(error)
            if isinstance(error, ChannelRewound):
                self.rewound[pchannels] = error.message
            _log.info("early tick not requested", error=str(error))

    def _note_full(self, error: Exception) -> None:
        if isinstance(error, DiskFull):
            self.log_full = error.message
