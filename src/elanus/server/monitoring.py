"""Start what both kinds of server need for monitoring: the gauges, and the port that serves them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from elanus.metrics import Metrics
from elanus.server.gauges import Gauges
from elanus.server.http_port import ObservePort
from elanus.server.report import Report, Subject
from elanus.server.settings import Settings


def start_observing(
    stack: AsyncExitStack, settings: Settings, subject: Subject, metrics: Metrics, report: Report
) -> str:
    """Start the gauges and open the port. Returns its URL, "" if it is disabled. Raises `PortTaken`."""
    gauges = asyncio.create_task(Gauges(subject, report, metrics).keep(), name="gauges")
    stack.callback(gauges.cancel)
    if not settings.metrics.enabled:
        return ""
    port = ObservePort(settings.metrics, metrics.registry, report)
    stack.push_async_callback(asyncio.to_thread, port.close)
    return port.url
