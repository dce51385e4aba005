"""Start what both kinds of server need for monitoring: measuring, and the port that serves the figures."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from elanus.metrics import Metrics
from elanus.proxy.read_watch import ReadWatch
from elanus.server.gauges import Gauges
from elanus.server.http_port import ObservePort
from elanus.server.loop_lag import LoopLag
from elanus.server.own_resources import OwnResources
from elanus.server.report import Report, Subject
from elanus.server.settings import Settings


def start_observing(
    stack: AsyncExitStack, settings: Settings, subject: Subject, metrics: Metrics, report: Report
) -> str:
    """Start the measuring and open the port. Returns its URL, "" if it is disabled. Raises `PortTaken`."""
    lag = LoopLag(subject.clock.monotonic_s, metrics.loop_lag_seconds.observe)
    metrics.loop_lag_max_seconds.set_function(lambda: lag.longest_s)
    report.loop_lag = lag
    report.watch = ReadWatch(settings.proxy.slow_request_ms)
    report.resources = OwnResources(settings, subject.growing_bytes, subject.clock.wall_ms, subject.store)
    measuring = asyncio.create_task(lag.keep(), name="loop lag")
    stack.callback(measuring.cancel)
    gauges = asyncio.create_task(Gauges(subject, report, metrics).keep(), name="gauges")
    stack.callback(gauges.cancel)
    if not settings.metrics.enabled:
        return ""
    guarded = settings.proxy.authorization_enabled
    port = ObservePort(settings.metrics, metrics.registry, report, guarded=guarded)
    stack.push_async_callback(asyncio.to_thread, port.close)
    return port.url
